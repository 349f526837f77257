"""Our own plugins, which are not part of the wheel: the command of each, and what to do where one is missing."""

from specchat.errors import UsageError

OWN_PLUGINS = {name: f"./plugins/specchat-{name}" for name in ("train", "fleet", "hybrids", "peers", "mcp", "web")}


def missing_plugin(what: str, plugin: str) -> UsageError:
    return UsageError(f"{what} is a plugin; {install_line(plugin)} installs it")


def install_line(plugin: str) -> str:
    return f"in a clone of specchat, 'pip install {OWN_PLUGINS[plugin]}'"
