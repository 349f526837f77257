"""The `/` commands of the screen: those of every front end, and the few that need a screen.

A command of the shared registry that would print a list opens the list here when it is said without an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.commands.command_registry import COMMANDS, FILE_COMMANDS, CommandInfo, conversation_commands
from specchat.commands.command_registry import help_text as described


@dataclass(frozen=True)
class ScreenCommand:
    """A command that the screen carries out itself, by one of its actions."""

    name: str
    arguments: str
    help: str
    action: str


SCREEN_COMMANDS: Mapping[str, ScreenCommand] = {
    command.name: command
    for command in (
        ScreenCommand("copy", "", "copy the last answer", "act_on_last('copy')"),
        ScreenCommand("code", "", "copy the last block of code", "act_on_last('code')"),
        ScreenCommand("reword", "", "ask the last question in other words", "act_on_last('edit')"),
        ScreenCommand("rewind", "", "go back to an earlier question of this conversation", "choose('rewind')"),
        ScreenCommand("inspect", "", "the last answer by who guessed it, step by step", "inspect"),
        ScreenCommand("mouse", "", "leave the mouse to the terminal, or take it back", "app.toggle_mouse"),
        ScreenCommand("theme", "", "other colours", "choose('theme')"),
        ScreenCommand("keys", "", "every key", "toggle_help"),
    )
}
PICKER_ACTIONS: Mapping[str, str] = {
    "sessions": "open_sessions",
    "open": "open_sessions",
    "variant": "choose('variant')",
    "profile": "choose('profile')",
}
BUILTIN_COMMANDS: Mapping[str, CommandInfo] = {**COMMANDS, **FILE_COMMANDS, **SCREEN_COMMANDS}


def all_commands() -> Mapping[str, CommandInfo]:
    """Every command, those of plugins last; where a name is taken twice, that of the screen."""
    return {**BUILTIN_COMMANDS, **conversation_commands({*FILE_COMMANDS, *SCREEN_COMMANDS}), **BUILTIN_COMMANDS}


def screen_action(name: str, argument: str) -> str | None:
    """The action of the screen that carries this out, None when the conversation does."""
    if name in SCREEN_COMMANDS:
        return SCREEN_COMMANDS[name].action
    return PICKER_ACTIONS.get(name) if not argument else None


def help_text() -> str:
    """Every command in a line."""
    return described(all_commands().values())
