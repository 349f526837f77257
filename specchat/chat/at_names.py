"""What a person's names mean: a file, a folder, a glob, the repository; given to a command or after an @ in a question.

Reads the files that were named one by one, and no other. Knows no model and no screen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specchat.chat.attachments import read_attachment
from specchat.chat.file_listing import FileListing, find_repository, is_folder, is_glob, list_folder, list_glob
from specchat.chat.plugin_loaders import has_loader, load_attachment
from specchat.chat.request import Attachment
from specchat.errors import InputError

REPOSITORY = "@repo"  # the repository that we are in
MENTION = re.compile(r"(?<!\S)@\S+")
SENTENCE_PUNCTUATION = ",.;:!?)"


def check_name(name: str) -> None:
    """InputError when there is nothing to read under this name. What plugins fetch is fetched with the question."""
    if not has_loader(name):
        resolve_names([name])


def find_mentions(text: str) -> list[str]:
    """What a question names after an @: files, folders and globs that there are, the repository, what plugins fetch.

    "why @src/a.py? @home" names "src/a.py" where there is such a file; anything else after an @ is text.
    """
    return [name for found in MENTION.finditer(text) if (name := _mention_name(found[0]))]


def _mention_name(word: str) -> str:
    """The name that `resolve` knows, "" when this is text. In "@clip:." the point ends a sentence, the colon stays."""
    if has_loader(word):
        scheme, colon, rest = word.partition(":")
        return scheme + colon + rest.rstrip(SENTENCE_PUNCTUATION)
    name = word.rstrip(SENTENCE_PUNCTUATION)
    if name == REPOSITORY:
        return name
    return name[1:] if _exists_or_matches(name[1:]) else ""


def _exists_or_matches(name: str) -> bool:
    if not name:
        return False
    path = _path(name)
    return _exists(path) or (is_glob(name) and bool(list_glob(str(path)).files))


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))  # noqa: PTH111 (a home that nobody has is no error)


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (nor is a name that is too long)


def resolve_names(names: Sequence[str]) -> tuple[list[Attachment], FileListing]:
    """The files that were named one by one, read, and what plugins fetched; and those that folders and globs hold."""
    named, listing = dict[Path, Attachment](), FileListing()
    for name in names:
        if has_loader(name):
            named[Path(name).absolute()] = load_attachment(name)
            continue
        path = _repository_root() if name == REPOSITORY else _path(name)
        if is_folder(path):
            listing += _require_files(list_folder(path), f"{name}: a folder without files that count")
        elif is_glob(name) and not _exists(path):
            listing += _require_files(list_glob(str(path)), f"{name}: no file matches; ignored ones do not count")
        else:
            named[path.absolute()] = read_attachment(path)
    others = tuple(path for path in listing.files if path.absolute() not in named)
    return list(named.values()), replace(listing, files=others)


def _require_files(listing: FileListing, otherwise: str) -> FileListing:
    if listing == FileListing():
        raise InputError(otherwise)
    return listing


def _repository_root() -> Path:
    """The root of the repository that we are in, by a short name."""
    here = Path.cwd()
    root = find_repository(here)
    if root is None:
        raise InputError(f"{REPOSITORY}: no repository here; name a folder instead, such as src/")
    return Path(*[".."] * len(here.relative_to(root).parts))
