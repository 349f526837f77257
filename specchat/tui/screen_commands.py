"""The slash commands of the TUI: the shared ones, and those that need a screen.

A shared command that would print a list opens a picker here when it has no argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.app.command_registry import COMMANDS, FILE_COMMANDS, CommandInfo, conversation_commands


@dataclass(frozen=True)
class ScreenCommand(CommandInfo):
    """A command that runs an action of the screen."""

    action: str


SCREEN_COMMANDS: Mapping[str, ScreenCommand] = {
    command.name: command
    for command in (
        ScreenCommand("select", "", "select an answer, to copy it or to edit its question", "select_turn(-1)"),
        ScreenCommand("copy", "", "copy the last answer", "last_turn('copy')"),
        ScreenCommand("code", "", "copy the last code block", "last_turn('code')"),
        ScreenCommand("reword", "", "edit the last request; the old version stays", "last_turn('edit')"),
        ScreenCommand("rewind", "", "go back to an earlier request of this conversation", "open_picker('rewind')"),
        ScreenCommand("inspect", "", "the last answer by drafter, step by step", "inspect"),
        ScreenCommand("mouse", "", "release the mouse to the terminal, or capture it again", "app.toggle_mouse"),
        ScreenCommand("theme", "[NAME]", "choose the colours", "open_picker('theme')"),
        ScreenCommand("numbers", "", "other numbers in the last line, or the short line again", "toggle_numbers"),
        ScreenCommand("keys", "", "show every key, those that one needs first", "app.show_keys"),
    )
}
COMMAND_ACTIONS: Mapping[str, str] = {
    "quit": "app.quit",  # at once, also while models are loaded
    "sessions": "open_sessions",
    "open": "open_sessions",
    "model": "open_picker('model')",
    "variant": "open_picker('variant')",
    "profile": "open_picker('profile')",
}
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
