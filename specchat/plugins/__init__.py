"""Plugins: extensions from other Python packages, found by their entry points in the group `specchat`.

    hooks.py       the nine hooks that a plugin may implement (pluggy)
    extension.py   one extension: a name, a description, and a reference to an object
    own_plugins.py our own plugins, and the line that installs each
    discovery.py   find plugins, call their hooks, report broken plugins

A plugin declares extensions by name and reference; the referenced objects are imported at first use. So a front end
knows the drafters of plugins without importing torch, and only the engine process builds them. This package does not
know what the objects are: the code that uses an extension checks its object.
"""
