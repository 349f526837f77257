"""Our own plugins, which are not part of the wheel: their commands, and what to do where one is missing."""

from specchat.errors import UsageError

OWN_PLUGINS = {name: f"./plugins/specchat-{name}" for name in ("train", "fleet", "bench", "mcp", "web")}
OWN_PLUGINS |= dict.fromkeys(("acp", "lsp", "editors"), "./plugins/specchat-editors")


def missing_plugin(what: str, command: str) -> UsageError:
    """The error about a command, or another thing of its plugin, that is not installed."""
    line = f"pip install {OWN_PLUGINS[command]}"
    return UsageError(f"{what} is a plugin; in a clone of specchat, '{line}' installs it")
