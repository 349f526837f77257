"""Our own plugins, which are not part of the wheel: what each brings, and what to do where one is missing."""

from collections.abc import Mapping

from specchat.errors import UsageError
from specchat.plugins.discovery import find_extensions

OTHER_TOKENS_VARIANT = "retokenized"  # drafts by a draft model that has other tokens than the target
PLUGIN_BY_VARIANT: Mapping[str, str] = dict.fromkeys(
    (
        "recycling", "lookahead", "exit", OTHER_TOKENS_VARIANT, "assistant", "eagle", "medusa", "hydra", "peagle",
        "dflash", "dflash2", "dspark",
    ),
    "heads",
)  # fmt: skip
OWN_PLUGINS: Mapping[str, str] = {  # by command
    **{name: name for name in ("apply", "train", "fleet", "bench", "mcp", "web", "serve")},
    **dict.fromkeys(("acp", "lsp", "editors"), "editors"),
    **dict.fromkeys(("verify", "vram", "stats", "inspect"), "bench"),
}


def missing_plugin(what: str, command: str) -> UsageError:
    """The error about a command, or another thing of its plugin, that is not installed."""
    return UsageError(f"{what} is a plugin; {install_line(OWN_PLUGINS[command])} installs it")


def missing_variant(name: str) -> str:
    """What to do where a variant of one of our plugins is not installed; "" for any other name."""
    plugin = PLUGIN_BY_VARIANT.get(name)
    if plugin is None or name in find_extensions("drafters"):
        return ""
    return f"variant {name!r} is of a plugin; {install_line(plugin)} installs it"


def install_line(plugin: str) -> str:
    return f"in a clone of specchat, 'pip install ./plugins/specchat-{plugin}'"
