"""What the options of several commands name: drafters and the like, separated by commas, and files of prompts."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from specchat.errors import InputError, UsageError
from specchat.profile.drafter_names import all_drafters
from specchat.profile.validation import did_you_mean

ALL = "all"
SEPARATOR = ","


class PromptsPath(click.Path):
    """A path that must exist; it is read only after the models are loaded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. InputError when it does not exist."""
        path = Path(value)
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        return path


PROMPTS = PromptsPath()


def parse_names(what: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """Known names separated by commas, or `all`. UsageError for an unknown one."""
    names = tuple(known) if text == ALL else tuple(word.strip() for word in text.split(SEPARATOR))
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r};{did_you_mean(name, known)} known are {', '.join(known)}")
    return names


def complete_drafters(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The last name of a list with commas."""
    before, comma, last = incomplete.rpartition(SEPARATOR)
    return [CompletionItem(f"{before}{comma}{name}") for name in (ALL, *all_drafters()) if name.startswith(last)]
