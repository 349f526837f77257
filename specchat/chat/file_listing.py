"""Which files of a folder a question may be about: what git keeps or would keep, or all that no tool made.

In a work tree git itself is asked, so nested `.gitignore` files, negations and the user's own rules hold. Elsewhere,
and where git ignores the whole folder that was named, everything counts but hidden files and folders, and folders of
tools (MADE). Links are never followed: what they lead to stands somewhere itself, or is none of the folder's business.
Knows names and sizes, and nothing of what is in a file.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from specchat.chat.attachments import display_name
from specchat.errors import InputError

MAX_FILE_BYTES = 2**20
MAX_FILES = 20_000
GIT_TIMEOUT_SECONDS = 20
# The folder may be anybody's: its own configuration must not start a program
GIT_LS_FILES = ("git", "-c", "core.fsmonitor=false", "ls-files", "-co", "--exclude-standard", "-z")
GENERATED_FOLDERS = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "site-packages", "target", "vendor", "venv"}
)
GLOB_CHARACTERS = re.compile(r"[*?[]")


@dataclass(frozen=True)
class FileListing:
    """Files in the order of their paths, and what was left out."""

    files: tuple[Path, ...] = ()
    large_files: int = 0
    symlinks: int = 0
    unreadable: tuple[str, ...] = ()
    is_truncated: bool = False  # there are more than MOST_FILES

    def __add__(self, other: FileListing) -> FileListing:
        return FileListing(
            tuple(dict.fromkeys((*self.files, *other.files))), self.large_files + other.large_files, self.symlinks + other.symlinks,
            (*self.unreadable, *other.unreadable), self.is_truncated or other.is_truncated,
        )  # fmt: skip


def list_folder(folder: Path, pattern: Sequence[str] = ("**",)) -> FileListing:
    """The files below a folder whose names follow the parts of a glob; InputError when it cannot be read."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    closed = list[str]()
    kept = _git_files(folder)
    walked = [] if kept else list(_walk_files(folder, closed))
    names = [name for name in sorted(kept or walked) if matches_glob(name.split("/"), pattern)]
    listing = _list_regular_files([folder / name for name in names[:MAX_FILES]])
    is_cut = max(len(names), len(walked)) > MAX_FILES
    return replace(listing, unreadable=(*sorted(closed), *listing.unreadable), is_cut=is_cut)


def list_glob(pattern: str) -> FileListing:
    """The files that a pattern means: `*`, `?` and `[…]` inside a name, `**` for folders."""
    parts = Path(pattern).parts
    fixed = next((place for place, part in enumerate(parts) if GLOB_CHARACTERS.search(part)), len(parts))
    folder = Path(*parts[:fixed])
    return list_folder(folder, parts[fixed:]) if is_folder(folder) else FileListing()


def matches_glob(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Do the parts of a name follow the parts of a glob? `**` stands for any number of folders, or for none."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(matches_glob(name[skipped:], pattern[1:]) for skipped in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and matches_glob(name[1:], pattern[1:])


def is_folder(path: Path) -> bool:
    """Is this a folder? A name that no file can have is none."""
    return os.path.isdir(path)  # noqa: PTH112 (is_dir raises for names that are too long)


def is_glob(name: str) -> bool:
    """Does this name stand for others?"""
    return bool(GLOB_CHARACTERS.search(name))


def find_repository(folder: Path) -> Path | None:
    """The nearest folder upwards that git looks after."""
    whole = folder.absolute()
    return next((place for place in (whole, *whole.parents) if os.access(place / ".git", os.F_OK)), None)


def _git_files(folder: Path) -> list[str]:
    """Names below the folder that git does not ignore; none where git is missing, refuses, or ignores them all."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # a hook sets such
    try:
        told = subprocess.run(
            GIT_LS_FILES, cwd=folder, env=own, capture_output=True, check=True, timeout=GIT_TIMEOUT_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [os.fsdecode(name) for name in told.split(b"\0") if name]


def _walk_files(folder: Path, closed: list[str]) -> Iterator[str]:
    """Names below the folder that are neither hidden nor made; `closed` gets the folders that nobody may open."""
    counted = 0
    for place, folders, files in os.walk(
        folder, onerror=lambda error: closed.append(display_name(Path(error.filename)))
    ):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in GENERATED_FOLDERS)
        inside = Path(place).relative_to(folder)
        yield from (str(inside / name) for name in sorted(files) if not name.startswith("."))
        counted += len(files)
        if counted > MAX_FILES:
            return


def _list_regular_files(paths: list[Path]) -> FileListing:
    kept, large, links, unreadable = list[Path](), 0, 0, list[str]()
    for path in paths:
        try:
            status = path.lstat()
        except FileNotFoundError:  # git still lists what was just deleted
            continue
        except OSError:
            unreadable.append(display_name(path))
            continue
        if stat.S_ISLNK(status.st_mode):
            links += 1
        elif stat.S_ISREG(status.st_mode):
            large += status.st_size > MAX_FILE_BYTES
            kept += [path] if status.st_size <= MAX_FILE_BYTES else []
    return FileListing(tuple(kept), large, links, tuple(unreadable))
