"""Resolve names: a file, a folder, a glob or the repository, given to a command or after an @ in a question.

A name `@NAME:REST`, such as `@clip:` or `@issue:12`, is loaded by a plugin, or by a loader that the caller gives. Reads
only files that are named one by one. Knows no model and no screen.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath

from specchat.chat.attachments import FENCE_LANGUAGES, NO_SUCH_FILE, decode_text, read_attachment
from specchat.chat.request import Attachment
from specchat.context.file_listing import FileListing, find_repository, is_folder, is_glob, list_folder, list_glob
from specchat.errors import InputError
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension

REPOSITORY = "@repo"  # the repository of the current folder
MENTION = re.compile(r'(?<!\S)@(?:"[^"\n]+"|\S+)')
OPEN_MENTION = re.compile(r'(?<!\S)@"[^"\n]*\Z')
ENDING_WORD = re.compile(r"\S*\Z")
CODE_CHARACTERS = re.compile(r"[()<>{}=\"'`\\\x00-\x1f]")  # of a decorator or an annotation, and hardly of a name
FILE_SUFFIXES = {*FENCE_LANGUAGES, ".cfg", ".conf", ".csv", ".ini", ".log", ".rst", ".sql", ".tex", ".txt", ".xml"}
SENTENCE_PUNCTUATION = ",.;:!?)"
Loader = Callable[[str], str]  # of REST


@dataclass(frozen=True)
class FileAccess:
    """Where names lead: relative to `root`; `contains` says which files may be read, any other name is text.

    `loader` gives what loads "@NAME:REST", by NAME; a plugin's loader comes first.
    """

    root: Path = Path()
    read: Callable[[Path], Attachment] = read_attachment
    contains: Callable[[Path], bool] = lambda _path: True
    loader: Callable[[str], Loader | None] = lambda _name: None

    def path_of(self, name: str) -> Path:
        return self.root / os.path.expanduser(name)  # noqa: PTH111 (an unknown home folder is not an error)


THIS_FOLDER = FileAccess()


def check_name(name: str, access: FileAccess = THIS_FOLDER) -> None:
    """Raise InputError when this name resolves to nothing. Loaders run only with the question."""
    if not find_loader(name, access):
        resolve_names([name], access)


def find_mentions(text: str, access: FileAccess = THIS_FOLDER) -> list[str]:
    """The names after an @ in a question: existing files, folders and globs, the repository, what has a loader.

    "why @src/a.py? @home" names "src/a.py". A name with spaces stands in quotes: @"my notes.txt". Raises InputError for
    a word that reads like a file that does not exist; any other word after an @ is text, and so is one in backticks.
    """
    return [name for word in MENTION.findall(text) if (name := _mention_name(word, access))]


def quoted_name(name: str) -> str:
    """A name as it is typed after an @: in quotes if it has spaces."""
    return f'"{name}"' if " " in name else name


def word_at_end(text: str) -> str:
    """The word that ends a text that is being typed, or a mention whose quotes are still open; "" after a space."""
    ending = OPEN_MENTION.search(text) or ENDING_WORD.search(text)
    return ending[0] if ending else ""


def unquoted_name(name: str) -> str:
    is_quoted = len(name) > 2 and name[0] == name[-1] == '"'
    return name[1:-1] if is_quoted else name


def _mention_name(word: str, access: FileAccess) -> str:
    """The name for `resolve_names`; "" for text. In "@clip:." the dot ends the sentence, and the colon stays."""
    if word.startswith('@"') and word.endswith('"') and len(word) > len('@""'):
        return _existing_name(word[2:-1], access, is_file=True)
    if find_loader(word, access):
        scheme, colon, rest = word.partition(":")
        return scheme + colon + rest.rstrip(SENTENCE_PUNCTUATION)
    name = word.rstrip(SENTENCE_PUNCTUATION)
    if name == REPOSITORY:
        return name
    return _existing_name(name[1:], access, is_file=_reads_like_file(name[1:])) if len(name) > 1 else ""


def _existing_name(name: str, access: FileAccess, *, is_file: bool) -> str:
    """The name if something has it; else InputError if it must be a file, and "" if it may be text."""
    path = access.path_of(name)
    if not access.contains(path):
        return ""
    if _exists(path) or (is_glob(name) and list_glob(str(path)).files):
        return name
    if is_file:
        quoted = quoted_name(name)
        raise InputError(f"@{quoted}: {NO_SUCH_FILE}, or write `@{quoted}` in backticks as text")
    return ""


def _reads_like_file(name: str) -> bool:
    if CODE_CHARACTERS.search(name):
        return False
    return "/" in name.strip("/") or PurePath(name).suffix.lower() in FILE_SUFFIXES


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (nor is a name that is too long)


def resolve_names(names: Sequence[str], access: FileAccess = THIS_FOLDER) -> tuple[list[Attachment], FileListing]:
    """Read the files that are named one by one and the texts of loaders; list the files of folders and globs."""
    named, listing = dict[Path, Attachment](), FileListing()
    for name in names:
        if load := find_loader(name, access):
            text = load(name.partition(":")[2]).encode(errors="replace")
            named[Path(name).absolute()] = Attachment(name, decode_text(text, name))
            continue
        path = _repository_root(access.root) if name == REPOSITORY else access.path_of(name)
        if is_folder(path):
            listing += _require_files(list_folder(path), f"{name}: the folder has no files that can be attached")
        elif is_glob(name) and not _exists(path):
            listing += _require_files(list_glob(str(path)), f"{name}: no file matches; ignored files are left out")
        else:
            named[path.absolute()] = access.read(path)
    others = tuple(path for path in listing.files if path.absolute() not in named)
    return list(named.values()), replace(listing, files=others)


def _require_files(listing: FileListing, error: str) -> FileListing:
    if listing == FileListing():
        raise InputError(error)
    return listing


def _repository_root(folder: Path) -> Path:
    """The root of the repository of a folder, as a short path relative to it."""
    here = folder.absolute()
    root = find_repository(here)
    if root is None:
        raise InputError(f"{REPOSITORY}: this folder is in no repository; name a folder instead, such as src/")
    return folder.joinpath(*[".."] * len(here.relative_to(root).parts))


def find_loader(name: str, access: FileAccess = THIS_FOLDER) -> Loader | None:
    """What loads the text of "@NAME:REST", by REST: of a plugin, else of the caller; None for another name."""
    scheme, colon, _rest = name.removeprefix("@").partition(":")
    if not (scheme and colon and name.startswith("@")):
        return None
    extension = find_extensions("context_loaders").get(scheme)
    return partial(_load_by_plugin, extension) if extension else access.loader(scheme)


def _load_by_plugin(extension: Extension, rest: str) -> str:
    text = extension.call(rest)
    if not isinstance(text, str):
        raise extension.plugin_error(f"returned a {type(text).__name__}, which is not text")
    return text
