"""List the files of a folder that a question may be about: those that git does not ignore, or all but generated ones.

In a work tree `git ls-files` decides, so nested `.gitignore` files, negations and the user's own rules apply.
Elsewhere, and where git ignores the whole folder, the list excludes hidden files and folders, and GENERATED_FOLDERS.
Symbolic links are not followed, because their targets are listed themselves or lie outside the folder. Knows names and
sizes, and no content of a file.
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
from specchat.git_command import run_git

MAX_FILE_BYTES = 2**20
MAX_FILES = 20_000
GENERATED_FOLDERS = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "site-packages", "target", "vendor", "venv"}
)
GLOB_CHARACTERS = re.compile(r"[*?[]")


@dataclass(frozen=True)
class FileListing:
    """Files in the order of their paths, and the number of files that were left out."""

    files: tuple[Path, ...] = ()
    large_files: int = 0
    symlinks: int = 0
    unreadable: tuple[str, ...] = ()
    is_truncated: bool = False  # there are more than MAX_FILES

    def __add__(self, other: FileListing) -> FileListing:
        return FileListing(
            tuple(dict.fromkeys((*self.files, *other.files))),
            self.large_files + other.large_files, self.symlinks + other.symlinks,
            (*self.unreadable, *other.unreadable), self.is_truncated or other.is_truncated,
        )  # fmt: skip


def list_folder(folder: Path, pattern: Sequence[str] = ("**",)) -> FileListing:
    """The files below a folder whose names match the parts of a glob; InputError when the folder cannot be read."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    unreadable = list[str]()
    tracked = git_files(folder)
    walked = [] if tracked else list(walk_files(folder, unreadable))
    names = [name for name in sorted(tracked or walked) if matches_glob(name.split("/"), pattern)]
    listing = _list_regular_files([folder / name for name in names[:MAX_FILES]])
    is_truncated = max(len(names), len(walked)) > MAX_FILES
    return replace(listing, unreadable=(*sorted(unreadable), *listing.unreadable), is_truncated=is_truncated)


def list_glob(pattern: str) -> FileListing:
    """The files that match a pattern: `*`, `?` and `[…]` inside a name, `**` for folders."""
    parts = Path(pattern).parts
    fixed = next((n for n, part in enumerate(parts) if GLOB_CHARACTERS.search(part)), len(parts))
    folder = Path(*parts[:fixed])
    return list_folder(folder, parts[fixed:]) if is_folder(folder) else FileListing()


def matches_glob(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a name match the parts of a glob. `**` matches any number of folders, also none."""
    matched = {0}  # how many parts of the name those of the pattern may have matched so far
    for part in pattern:
        if part == "**":
            matched = set(range(min(matched, default=len(name) + 1), len(name) + 1))
        else:
            matched = {at + 1 for at in matched if at < len(name) and fnmatchcase(name[at], part)}
    return len(name) in matched


def is_folder(path: Path) -> bool:
    """Whether this is a folder. An invalid file name is not."""
    return os.path.isdir(path)  # noqa: PTH112 (is_dir raises for names that are too long)


def is_glob(name: str) -> bool:
    return bool(GLOB_CHARACTERS.search(name))


def find_repository(folder: Path) -> Path | None:
    """This folder or its nearest parent that is a git repository."""
    start = folder.absolute()
    return next((each for each in (start, *start.parents) if os.access(each / ".git", os.F_OK)), None)


def git_files(folder: Path) -> list[str]:
    """Names below the folder that git does not ignore; none when git is missing, fails, or ignores them all."""
    try:
        listed = run_git(folder, "ls-files", "-co", "--exclude-standard", "-z")
        listed.check_returncode()
    except (OSError, subprocess.SubprocessError):
        return []
    return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def walk_files(
    folder: Path, unreadable: list[str], skipped: frozenset[str] = GENERATED_FOLDERS, *, has_hidden: bool = False,
    max_files: int | None = None,
) -> Iterator[str]:  # fmt: skip
    """Names below the folder that are neither hidden nor generated; adds folders without access to `unreadable`.

    `has_hidden`: with hidden files, and without hidden folders. It ends after the folder with which they are more than
    `max_files`, or than MAX_FILES.
    """
    count = 0
    for parent, folders, files in os.walk(
        folder, onerror=lambda error: unreadable.append(display_name(Path(error.filename)))
    ):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in skipped)
        relative = Path(parent).relative_to(folder)
        names = [str(relative / name) for name in sorted(files) if has_hidden or not name.startswith(".")]
        yield from names
        count += len(names)
        if count > (max_files or MAX_FILES):
            return


def _list_regular_files(paths: list[Path]) -> FileListing:
    files, large, links, unreadable = list[Path](), 0, 0, list[str]()
    for path in paths:
        try:
            status = path.lstat()
        except FileNotFoundError:  # git still lists a file that was just deleted
            continue
        except OSError:
            unreadable.append(display_name(path))
            continue
        if stat.S_ISLNK(status.st_mode):
            links += 1
        elif stat.S_ISREG(status.st_mode):
            large += status.st_size > MAX_FILE_BYTES
            files += [path] if status.st_size <= MAX_FILE_BYTES else []
    return FileListing(tuple(files), large, links, tuple(unreadable))
