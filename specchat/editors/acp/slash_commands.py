"""The slash commands of a prompt: shared commands that make sense in an editor, and `/edit` and `/fix`.

Commands that switch the conversation are excluded: the editor does this itself and would show the wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping

from acp.schema import AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, UnstructuredCommandInput

from specchat.commands.command_registry import COMMAND_PATTERN, COMMANDS, Command, conversation_commands

EDIT = "edit"
EDIT_ARGUMENTS, EDIT_HELP = "FILE[:FIRST-LAST] INSTRUCTION", "rewrite a file by instruction; shows the diff first"
SHARED_COMMANDS = ("retry", "undo", "show", "rename", "profile", "variant", "temperature", "seed", "stats", "why")
HELP = "help"
FIX, FIX_INSTRUCTION = "fix", "fix the mistakes in it"
FIX_ARGUMENTS, FIX_HELP = "FILE[:FIRST-LAST]", f"same as /{EDIT} with '{FIX_INSTRUCTION}'"
QUESTION_TEMPLATES: Mapping[str, str] = {"explain": "Explain {}.", "test": "Write tests for {}."}
ATTACHED_CODE = "the attached code"  # the default argument


def available_commands() -> Mapping[str, Command]:
    reserved = {EDIT, FIX, *QUESTION_TEMPLATES}
    return {
        name: command
        for name, command in conversation_commands(reserved).items()
        if name in SHARED_COMMANDS or name not in COMMANDS
    }


def parse_slash_command(text: str) -> tuple[str, str] | None:
    """The name and the argument of a command; None for a question, including unknown commands."""
    match = COMMAND_PATTERN.match(text)
    if match is None or match["name"] not in {HELP, EDIT, FIX, *QUESTION_TEMPLATES, *available_commands()}:
        return None
    return match["name"], (match["argument"] or "").strip()


def help_text() -> str:
    commands = _all_commands().items()
    return "\n".join(f"- `{f'/{name} {arguments}'.rstrip()}`: {text}" for name, (arguments, text) in commands)


def commands_update() -> AvailableCommandsUpdate:
    commands = [
        AvailableCommand(name=name, description=what, input=_command_input(arguments))
        for name, (arguments, what) in _all_commands().items()
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)


def _all_commands() -> dict[str, tuple[str, str]]:
    shared = {name: (command.arguments, command.help) for name, command in available_commands().items()}
    questions = {name: ("[WHAT]", f"ask: '{text.format('…')}'") for name, text in QUESTION_TEMPLATES.items()}
    edits = {EDIT: (EDIT_ARGUMENTS, EDIT_HELP), FIX: (FIX_ARGUMENTS, FIX_HELP)}
    return {HELP: ("", COMMANDS[HELP].help), **edits, **questions, **shared}


def _command_input(arguments: str) -> AvailableCommandInput | None:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=arguments)) if arguments else None
