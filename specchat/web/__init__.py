"""The terminal screen in a browser on this machine. Knows no model and no chat, only a command to run.

browser_access.py    one browser may connect: a token that works once, a cookie, and the same origin
server.py            textual-serve with access control in front; a process of the command for each tab
die_with_parent.py   runs specchat so that it exits with the server
"""
