"""What the word before the cursor may become: a command after a slash, a file after an @. Strings in, strings out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from specchat.chat.at_names import REPOSITORY
from specchat.commands.registry import Described

MOST = 12
TAKES_FILE = ("/file ", "/edit ", "/apply ")  # their first word
MOST_VISITED = 4000
SKIPPED = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Choice:
    """One way to go on: what replaces the last `length` characters, and what is said of it."""

    text: str
    length: int
    help: str = ""
    is_whole: bool = False  # nothing more is to be typed


def completions(before: str, commands: Mapping[str, Described], folder: Path) -> list[Choice]:
    """The choices for the text before the cursor, the best first."""
    word = before.rsplit(maxsplit=1)[-1] if before and not before[-1].isspace() else ""
    if before.startswith("/") and word == before:
        return _commands(before[1:], commands, len(before))
    if word.startswith("@"):
        return [*_repository(word), *_files(word[1:], len(word) - 1, folder)][:MOST]
    if before.startswith(TAKES_FILE) and before.count(" ") == 1 and not before.endswith(" "):
        return _files(word, len(word), folder)
    return []


def _commands(typed: str, commands: Mapping[str, Described], length: int) -> list[Choice]:
    begun = [command for command in commands.values() if command.name.startswith(typed)]
    inside = [command for command in commands.values() if typed in command.name and command not in begun]
    return [
        Choice(
            f"/{command.name} " if command.arguments else f"/{command.name}", length,
            f"{command.arguments} {command.help}".strip(), is_whole=not command.arguments,
        )
        for command in [*begun, *inside]
    ]  # fmt: skip


def _repository(word: str) -> Iterator[Choice]:
    if len(word) > 1 and REPOSITORY.startswith(word):
        yield Choice(REPOSITORY[1:], len(word) - 1, "what the repository says", is_whole=True)


def _files(typed: str, length: int, folder: Path) -> list[Choice]:
    beside = list(_beside(typed, folder))
    names = beside or list(islice(_anywhere(typed, folder), MOST))
    return [Choice(name, length) for name in names[:MOST]]


def _beside(typed: str, folder: Path) -> Iterator[str]:
    """Names that go on where the typed path ends."""
    head, slash, start = typed.rpartition("/")
    place = folder / Path(head + slash).expanduser() if slash else folder
    try:
        entries = sorted(os.scandir(place), key=lambda entry: (not entry.is_dir(), entry.name.lower()))
    except OSError:
        return
    for entry in entries:
        is_hidden = entry.name.startswith(".") and not start.startswith(".")
        if entry.name.lower().startswith(start.lower()) and not is_hidden:
            yield f"{head}{slash}{entry.name}{'/' if entry.is_dir() else ''}"


def _anywhere(typed: str, folder: Path) -> Iterator[str]:
    """Files below the folder whose path holds what was typed; only so many are looked at."""
    if not typed or typed.startswith(("/", "~")):
        return
    visited = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in sorted(files):
            visited += 1
            path = (Path(place) / name).relative_to(folder).as_posix()
            if typed.lower() in path.lower():
                yield path
        if visited > MOST_VISITED:
            return
