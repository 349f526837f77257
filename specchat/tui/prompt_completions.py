"""Completions of the word before the cursor: commands after a slash, files after an @. Strings in, strings out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from specchat.chat.at_names import REPOSITORY
from specchat.commands.command_registry import FILE_ARGUMENT_COMMANDS, CommandInfo

MAX_COMPLETIONS = 12
MAX_VISITED_FILES = 4000
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class CompletionItem:
    """One completion: `text` replaces the last `replaced_length` characters; `help` describes it."""

    text: str
    replaced_length: int
    help: str = ""
    is_final: bool = False  # nothing more to type


def completions(text_before_cursor: str, commands: Mapping[str, CommandInfo], folder: Path) -> list[CompletionItem]:
    word = (
        text_before_cursor.rsplit(maxsplit=1)[-1] if text_before_cursor and not text_before_cursor[-1].isspace() else ""
    )
    if text_before_cursor.startswith("/") and word == text_before_cursor:
        return _command_items(text_before_cursor[1:], commands, len(text_before_cursor))
    if word.startswith("@"):
        return [*_repository_item(word), *_file_items(word[1:], len(word) - 1, folder)][:MAX_COMPLETIONS]
    if (
        text_before_cursor.startswith(FILE_ARGUMENT_COMMANDS)
        and text_before_cursor.count(" ") == 1
        and not text_before_cursor.endswith(" ")
    ):
        return _file_items(word, len(word), folder)
    return []


def _command_items(typed: str, commands: Mapping[str, CommandInfo], length: int) -> list[CompletionItem]:
    prefixed = [command for command in commands.values() if command.name.startswith(typed)]
    containing = [command for command in commands.values() if typed in command.name and command not in prefixed]
    return [
        CompletionItem(
            f"/{command.name} " if command.arguments else f"/{command.name}", length,
            f"{command.arguments} {command.help}".strip(), is_final=not command.arguments,
        )
        for command in [*prefixed, *containing]
    ]  # fmt: skip


def _repository_item(word: str) -> Iterator[CompletionItem]:
    if len(word) > 1 and REPOSITORY.startswith(word):
        yield CompletionItem(REPOSITORY[1:], len(word) - 1, "passages of this repository", is_final=True)


def _file_items(typed: str, length: int, folder: Path) -> list[CompletionItem]:
    in_folder = list(_names_in_folder(typed, folder))
    names = in_folder or list(islice(_paths_containing(typed, folder), MAX_COMPLETIONS))
    return [CompletionItem(name, length) for name in names[:MAX_COMPLETIONS]]


def _names_in_folder(typed: str, folder: Path) -> Iterator[str]:
    head, slash, start = typed.rpartition("/")
    directory = folder / Path(head + slash).expanduser() if slash else folder
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: (not entry.is_dir(), entry.name.lower()))
    except OSError:
        return
    for entry in entries:
        is_hidden = entry.name.startswith(".") and not start.startswith(".")
        if entry.name.lower().startswith(start.lower()) and not is_hidden:
            yield f"{head}{slash}{entry.name}{'/' if entry.is_dir() else ''}"


def _paths_containing(typed: str, folder: Path) -> Iterator[str]:
    """Paths below the folder that contain the typed text; visits a limited number of files."""
    if not typed or typed.startswith(("/", "~")):
        return
    visited = 0
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            visited += 1
            path = (Path(directory) / name).relative_to(folder).as_posix()
            if typed.lower() in path.lower():
                yield path
        if visited > MAX_VISITED_FILES:
            return
