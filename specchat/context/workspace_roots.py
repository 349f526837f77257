"""The folders of a session: which files it may read and write, after resolving links and `..`."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from specchat.errors import InputError

PROTECTED_FOLDER = ".git"
MAX_NAMING_CHARACTERS = 2000  # of a text; in longer ones file names are part of what is quoted
PUNCTUATION = "`'\"()[]{}<>,;:!?"


@dataclass(frozen=True)
class WorkspaceRoots:
    """The folders of a session; names are relative to `main_root`."""

    main_root: Path
    additional_roots: tuple[Path, ...] = ()

    def path_of(self, name: str) -> Path:
        """The path for a name or a `file:` URI; the file system is not read."""
        return self.main_root / (path_of_uri(name) or name)

    def files_named_in(self, text: str) -> list[Path]:
        """The existing files that a short text names: "rename add to plus in f.py" names f.py. Each once, in order.

        A name has a dot or a slash: "test" stays a word even where a file has this name.
        """
        words = [word.strip(PUNCTUATION).rstrip(".") for word in text[:MAX_NAMING_CHARACTERS].split()]
        paths = dict.fromkeys(self.path_of(word) for word in words if "." in word or "/" in word)
        return [path for path in paths if is_file(path) and self.contains(path)]

    def display_name(self, path: Path) -> str:
        return str(path.relative_to(self.main_root)) if path.is_relative_to(self.main_root) else str(path)

    def contains(self, path: Path) -> bool:
        """Whether this file, with links resolved, lies in one of the folders."""
        try:
            real = path.resolve()
            return any(real.is_relative_to(root.resolve()) for root in (self.main_root, *self.additional_roots))
        except (OSError, RuntimeError, ValueError):
            return False

    def check_writable(self, path: Path) -> None:
        """InputError for a file that an edit must not change."""
        if not self.contains(path):
            raise InputError(f"{path}: is outside the folders of this session")
        if PROTECTED_FOLDER in path.resolve().parts:
            raise InputError(f"{path}: is part of the git repository data")


def is_file(path: Path) -> bool:
    """Whether this is a regular file; a name that is too long is none."""
    return os.path.isfile(path)  # noqa: PTH113 (`Path.is_file` raises for such a name)


def path_of_uri(uri: str) -> Path | None:
    """The path of a `file:` URI, None for any other URI."""
    try:
        split = urlsplit(uri)
    except ValueError:
        return None
    return Path(unquote(split.path)) if split.scheme == "file" and split.path.startswith("/") else None
