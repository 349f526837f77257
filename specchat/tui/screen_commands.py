"""The slash commands of the TUI: the shared ones, and those that need a screen.

A shared command that would print a list opens a picker here when it has no argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.app.chat_settings import COMMAND_TABLES
from specchat.app.command_registry import COMMANDS, FILE_COMMANDS, CommandInfo, conversation_commands


@dataclass(frozen=True)
class ScreenCommand(CommandInfo):
    """A command that runs an action of the screen."""

    action: str


SCREEN_COMMANDS: Mapping[str, ScreenCommand] = {
    name: ScreenCommand(name, entry.get("arguments", ""), entry["help"], entry["action"])
    for name, entry in COMMAND_TABLES["screen_commands"].items()
}
COMMAND_ACTIONS: Mapping[str, str] = COMMAND_TABLES["screen_actions"]
BUILTIN_COMMANDS: Mapping[str, CommandInfo] = {**COMMANDS, **FILE_COMMANDS, **SCREEN_COMMANDS}


def all_commands() -> Mapping[str, CommandInfo]:
    """All commands, those of plugins last; built-in names take precedence."""
    return {**BUILTIN_COMMANDS, **conversation_commands({*FILE_COMMANDS, *SCREEN_COMMANDS}), **BUILTIN_COMMANDS}


def screen_action(name: str, argument: str) -> str | None:
    if name == "theme" and argument:
        return f"app.set_theme({argument!r})"
    if name in SCREEN_COMMANDS:
        return SCREEN_COMMANDS[name].action
    return COMMAND_ACTIONS.get(name) if not argument else None
