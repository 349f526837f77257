"""What the end of a line that is being typed may become: commands, files and other names after an @, arguments."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from specchat.app.command_registry import FILE_ARGUMENT_COMMANDS, CommandInfo
from specchat.app.tool_sources import OfferedName
from specchat.context.at_names import REPOSITORY, quoted_name, word_at_end
from specchat.context.file_listing import walk_files

MAX_COMPLETIONS = 12
MAX_VISITED_FILES = 4000
NO_CHOICES: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True)
class CompletionItem:
    """One completion: `text` replaces the last `replaced_length` characters; `help` describes it."""

    text: str
    replaced_length: int
    help: str = ""
    is_final: bool = False  # nothing more to type


def completions(
    before: str,
    commands: Mapping[str, CommandInfo],
    folder: Path,
    resources: Sequence[OfferedName] = (),
    choices: Mapping[str, Sequence[str]] = NO_CHOICES,
) -> list[CompletionItem]:
    """For the text before the cursor. `choices` are the arguments of commands that have a few."""
    word = word_at_end(before)
    if before.startswith("/") and word == before:
        return _command_items(before[1:], commands)
    if word.startswith("@"):
        typed = word[1:].removeprefix('"')
        named = [*_repository_item(word), *_resource_items(word, resources)]
        return [*named, *_file_items(typed, len(word) - 1, folder)][:MAX_COMPLETIONS]
    if before.startswith("/") and before.count(" ") == 1:
        names = [name for name in choices.get(before[1:].partition(" ")[0], ()) if name.startswith(word)]
        if before.startswith(FILE_ARGUMENT_COMMANDS) and word:
            return _file_items(word, len(word), folder)
        return [CompletionItem(name, len(word), is_final=True) for name in names][:MAX_COMPLETIONS]
    return []


def _command_items(typed: str, commands: Mapping[str, CommandInfo]) -> list[CompletionItem]:
    """Those that begin so, and then those that contain it."""
    matching = [command for command in commands.values() if typed in command.name]
    return [
        CompletionItem(
            f"/{command.name} " if command.arguments else f"/{command.name}", len(typed) + 1,
            f"{command.arguments} {command.help}".strip(), is_final=not command.arguments,
        )
        for command in sorted(matching, key=lambda each: not each.name.startswith(typed))
    ]  # fmt: skip


def _repository_item(word: str) -> Iterator[CompletionItem]:
    if len(word) > 1 and REPOSITORY.startswith(word):
        yield CompletionItem(REPOSITORY[1:], len(word) - 1, "passages of this repository", is_final=True)


def _resource_items(word: str, resources: Sequence[OfferedName]) -> Iterator[CompletionItem]:
    for each in resources:
        if len(word) > 1 and each.name.startswith(word) and each.name != word:
            yield CompletionItem(each.name[1:], len(word) - 1, each.help, is_final=not each.name.endswith(":"))


def _file_items(typed: str, length: int, folder: Path) -> list[CompletionItem]:
    in_folder = list(_names_in_folder(typed, folder))
    names = in_folder or list(islice(_paths_containing(typed, folder), MAX_COMPLETIONS))
    return [CompletionItem(quoted_name(name), length) for name in names[:MAX_COMPLETIONS]]


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
    for name in walk_files(folder, [], has_hidden=True, max_files=MAX_VISITED_FILES):
        if typed.lower() in (path := Path(name).as_posix()).lower():
            yield path
