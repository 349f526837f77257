"""What a prompt may do besides asking: the `/` commands of every front end that make sense in an editor, and `/edit`.

Those that would go to another conversation are left out: the editor has its own ways, and would show the wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping

from acp.schema import AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, UnstructuredCommandInput

from specchat.commands.command_registry import COMMAND_PATTERN, COMMANDS, Command, conversation_commands

EDIT = "edit"
EDIT_ARGUMENTS, EDIT_HELP = "FILE[:FIRST-LAST] INSTRUCTION", "rewrite a file as asked; you see the diff first"
SHARED_COMMANDS = ("retry", "undo", "show", "rename", "profile", "variant", "temperature", "seed", "stats", "why")
HELP = "help"
FIX, FIX_INSTRUCTION = "fix", "fix the mistakes in it"
FIX_ARGUMENTS, FIX_HELP = "FILE[:FIRST-LAST]", f"the same as /{EDIT} with '{FIX_INSTRUCTION}'"
QUESTION_TEMPLATES: Mapping[str, str] = {"explain": "Explain {}.", "test": "Write tests for {}."}
ATTACHED_CODE = "the attached code"  # what they are about when nothing is named


def available_commands() -> Mapping[str, Command]:
    """Ours that make sense here, and those of plugins."""
    taken = {EDIT, FIX, *QUESTION_TEMPLATES}
    return {
        name: command
        for name, command in conversation_commands(taken).items()
        if name in SHARED_COMMANDS or name not in COMMANDS
    }


def parse_slash_command(text: str) -> tuple[str, str] | None:
    """The name and the argument of one of our commands; None for a question, as which an unknown word counts too."""
    found = COMMAND_PATTERN.match(text)
    if found is None or found["name"] not in {HELP, EDIT, FIX, *QUESTION_TEMPLATES, *available_commands()}:
        return None
    return found["name"], (found["argument"] or "").strip()


def help_text() -> str:
    """Every command in a line, as Markdown."""
    known = _all_commands().items()
    return "\n".join(f"- `{f'/{name} {arguments}'.rstrip()}`: {what}" for name, (arguments, what) in known)


def commands_update() -> AvailableCommandsUpdate:
    """The menu."""
    commands = [
        AvailableCommand(name=name, description=what, input=_command_input(arguments))
        for name, (arguments, what) in _all_commands().items()
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)


def _all_commands() -> dict[str, tuple[str, str]]:
    others = {name: (command.arguments, command.help) for name, command in available_commands().items()}
    asking = {name: ("[WHAT]", f"ask: '{words.format('…')}'") for name, words in QUESTION_TEMPLATES.items()}
    editing = {EDIT: (EDIT_ARGUMENTS, EDIT_HELP), FIX: (FIX_ARGUMENTS, FIX_HELP)}
    return {HELP: ("", COMMANDS[HELP].help), **editing, **asking, **others}


def _command_input(arguments: str) -> AvailableCommandInput | None:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=arguments)) if arguments else None
