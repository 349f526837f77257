"""A plugin for specchat: its screen in a browser on this machine. Knows no model and no chat, only a command to run.

command.py           `specchat web`
browser_access.py    one browser may connect: a token that works once, a cookie, and the same origin
server.py            textual-serve with access control in front; a process of the command for each tab
tab.py               that process, which ends with the server

Every process of specchat imports this file, so it only declares the extensions.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    return [Extension("web", "The same screen in a browser on this machine.", "specchat_web.command:web")]
