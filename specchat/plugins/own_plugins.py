"""Our own plugins, which are not part of the wheel: the command of each, and what to do where one is missing."""

from specchat.errors import UsageError

OWN_PLUGINS = {name: f"./plugins/specchat-{name}" for name in ("train", "fleet", "bench", "mcp", "web")}


def missing_plugin(what: str, plugin: str) -> UsageError:
    line = f"pip install {OWN_PLUGINS[plugin]}"
    return UsageError(f"{what} is a plugin; in a clone of specchat, '{line}' installs it")
