"""The options of commands that ask a question: its files, the format of its answer, and tools of this folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from specchat.app.chat_state import ChatState
from specchat.chat.request import AnswerFormat
from specchat.cli.completion import complete_files
from specchat.cli.options import CommandFunction
from specchat.errors import InputError
from specchat.host.client import Conversation
from specchat.profile.keys import AGENT_ON, AGENT_PLAN
from specchat.repl.terminal_ui import terminal_ui

CHOICE_SEPARATOR = "|"


def file_option(command: CommandFunction) -> CommandFunction:
    return click.option(
        "-f", "--file", "files", multiple=True, shell_complete=complete_files,
        help="Attach a file, folder, glob, @repo or a resource @SERVER:URI; may be given again.",
    )(command)  # fmt: skip


def answer_format_options(command: CommandFunction) -> CommandFunction:
    """`--schema`, `--regex`, `--choices`: the format of the answer."""
    for option in (
        click.option("--choices", metavar="A|B", default="", help="The answer is one of these texts."),
        click.option("--regex", metavar="PATTERN", default="", help="The whole answer matches this expression."),
        click.option("--schema", metavar="FILE|JSON", default="", help="The answer is JSON of this schema."),
    ):
        command = option(command)
    return command


def answer_format_from_options(options: dict[str, Any]) -> AnswerFormat | None:
    """Remove the options and return the format that they require. UsageError when two are given."""
    schema, regex, choices = (options.pop(name) for name in ("schema", "regex", "choices"))
    texts = choices.split(CHOICE_SEPARATOR) if choices else ()
    return AnswerFormat.from_options({"schema": _schema_text(schema), "regex": regex, "choices": texts})


def _schema_text(schema: str) -> str:
    """The content of the file; a text that begins with a brace is a schema itself."""
    if not schema or schema.lstrip().startswith("{"):
        return schema
    try:
        return Path(schema).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{schema}: the schema cannot be read: {error}") from error


def agent_options(command: CommandFunction) -> CommandFunction:
    """`--agent`, `--plan`, `--allow`: tools in this folder."""
    agent = click.option("--agent", "is_agent", is_flag=True, help="Let the model use tools here (docs/agents.md).")
    plan = click.option("--plan", "is_plan", is_flag=True, help="The same, and the tools only read.")
    allow = click.option(
        "--allow", multiple=True, metavar="TOOL[:PATTERN]",
        help="Let this tool act without a question; may be given again.",
    )  # fmt: skip
    return agent(plan(allow(command)))


def take_agent_mode(options: dict[str, Any]) -> tuple[str, Sequence[str]]:
    """The mode, "" for that of the profile, and the rules; removes the `agent_options` from the options."""
    is_agent, is_plan, allow = options.pop("is_agent"), options.pop("is_plan"), options.pop("allow")
    return AGENT_PLAN if is_plan else AGENT_ON if is_agent else "", allow


def command_chat(conversation: Conversation, mode: str, allow: Sequence[str]) -> ChatState:
    """The chat of a command. It asks the user at a terminal only."""
    return ChatState(conversation, has_commands=False, ui=terminal_ui(), allow=allow, agent_mode=mode)
