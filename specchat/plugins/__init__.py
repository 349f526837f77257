"""Plugins: what other Python packages add to specchat, found by their entry points in the group `specchat`.

    offer.py    one thing that a plugin adds: a name, a line, and where it lies
    hooks.py    the six questions that a plugin may answer (pluggy)
    load.py     finding the packages, asking them, and telling of those that are broken

A plugin says by name what it has and where; nothing of it is imported before somebody asks for that name. So a screen
knows a drafter without importing torch, and the engine process alone makes one. Knows none of the things that plugins
add: whoever uses an offer checks what it leads to.
"""
