"""Our own plugins, which are not part of the wheel: their commands, and what to do where one is missing."""

from specchat.errors import UsageError

COMMANDS_OF_PLUGINS = {
    "train": ("train",), "fleet": ("fleet",), "bench": ("bench",), "mcp": ("mcp",), "web": ("web",),
    "editors": ("acp", "lsp", "editors"),
}  # fmt: skip
OWN_PLUGINS = {  # by command
    command: f"./plugins/specchat-{plugin}" for plugin, commands in COMMANDS_OF_PLUGINS.items() for command in commands
}


def missing_plugin(what: str, command: str) -> UsageError:
    """The error about a command, or another thing of its plugin, that is not installed."""
    return UsageError(f"{what} is a plugin; {install_line(OWN_PLUGINS[command].rpartition('-')[2])} installs it")


def install_line(plugin: str) -> str:
    return f"in a clone of specchat, 'pip install ./plugins/specchat-{plugin}'"
