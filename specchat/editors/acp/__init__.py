"""Editors that speak the Agent Client Protocol, version 1: a thin client of the engine process, like every front end.

stdio.py      bytes: a private descriptor, lines in, lines out     answering.py  events in, updates out
guard.py      messages: what the SDK must never get to see         prompts.py    blocks of a prompt -> a question
serving.py    from the first byte to the last                      commands.py   what a prompt may do besides asking
agent.py      the methods of the protocol                          wanted.py     is an edit wanted, and of what
room.py       one session: a thread, a queue of prompts            rewriting.py  a file written anew by the model
talking.py    one prompt: a question, a command or an edit         editing.py    diff, permission, one write
editor.py     the editor, as a thread of ours sees it              settings.py   modes and options of a session
places.py     which files are ours to read and write               updates.py    the few words that we say
stored.py     conversations of yesterday

The SDK (`acp`, a package of the extra `editors`) takes most of a second to import, so nothing outside imports this.
"""
