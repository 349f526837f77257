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
from specchat.chat.ignore import Listing, is_folder, is_glob, list_folder, list_glob, repository_of
from specchat.chat.plugin_loaders import is_loaded, load
from specchat.chat.request import Attachment
from specchat.errors import InputError

REPOSITORY = "@repo"  # the repository that we are in
MENTION = re.compile(r"(?<!\S)@\S+")
ENDS_OF_SENTENCES = ",.;:!?)"


def check_name(name: str) -> None:
    """InputError when there is nothing to read under this name. What plugins fetch is fetched with the question."""
    if not is_loaded(name):
        resolve([name])


def mentioned(text: str) -> list[str]:
    """What a question names after an @: files, folders and globs that there are, the repository, what plugins fetch.

    "why @src/a.py? @home" names "src/a.py" where there is such a file; anything else after an @ is text.
    """
    return [name for found in MENTION.finditer(text) if (name := _meant(found[0]))]


def _meant(word: str) -> str:
    """The name that `resolve` knows, "" when this is text. In "@clip:." the point ends a sentence, the colon stays."""
    if is_loaded(word):
        scheme, colon, rest = word.partition(":")
        return scheme + colon + rest.rstrip(ENDS_OF_SENTENCES)
    name = word.rstrip(ENDS_OF_SENTENCES)
    if name == REPOSITORY:
        return name
    return name[1:] if _is_there(name[1:]) else ""


def _is_there(name: str) -> bool:
    if not name:
        return False
    path = _path(name)
    return _exists(path) or (is_glob(name) and bool(list_glob(str(path)).files))


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))  # noqa: PTH111 (a home that nobody has is no error)


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (nor is a name that is too long)


def resolve(names: Sequence[str]) -> tuple[list[Attachment], Listing]:
    """The files that were named one by one, read, and what plugins fetched; and those that folders and globs hold."""
    named, listing = dict[Path, Attachment](), Listing()
    for name in names:
        if is_loaded(name):
            named[Path(name).absolute()] = load(name)
            continue
        path = _repository() if name == REPOSITORY else _path(name)
        if is_folder(path):
            listing += _not_empty(list_folder(path), f"{name}: a folder without files that count")
        elif is_glob(name) and not _exists(path):
            listing += _not_empty(list_glob(str(path)), f"{name}: no file matches; ignored ones do not count")
        else:
            named[path.absolute()] = read_attachment(path)
    others = tuple(path for path in listing.files if path.absolute() not in named)
    return list(named.values()), replace(listing, files=others)


def _not_empty(listing: Listing, otherwise: str) -> Listing:
    if listing == Listing():
        raise InputError(otherwise)
    return listing


def _repository() -> Path:
    """The root of the repository that we are in, by a short name."""
    here = Path.cwd()
    root = repository_of(here)
    if root is None:
        raise InputError(f"{REPOSITORY}: no repository here; name a folder instead, such as src/")
    return Path(*[".."] * len(here.relative_to(root).parts))
