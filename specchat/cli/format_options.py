"""The options that constrain the format of an answer: `--schema`, `--regex`, `--choices`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specchat.chat.request import AnswerFormat
from specchat.errors import InputError

CHOICE_SEPARATOR = "|"


def answer_format_options(command: Callable[..., Any]) -> Callable[..., Any]:
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
