"""Writing files so that nobody ever sees half of one: a temporary file beside each, and then one rename.

Several files are all made ready before the first is replaced; when one cannot be, those before it get their old content
back. A link stays a link. What a killed process may leave behind is a hidden file beside the real one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.edit.source import Source
from specchat.errors import FileChangedError, SpecchatError, UsageError

WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Replacement:
    """A file, what it holds and what it shall hold."""

    path: Path
    old: bytes
    new: bytes


@dataclass(frozen=True)
class _Staged:
    """A new content on disk, one rename away from its place."""

    replacement: Replacement
    target: Path
    temporary: Path

    def check(self) -> None:
        if self.target.read_bytes() != self.replacement.old:
            path = self.replacement.path
            raise FileChangedError(f"{path}: was changed meanwhile; nothing is written, run the edit again")

    def put(self) -> None:
        self.temporary.replace(self.target)
        _sync_folder(self.target.parent)


def write(source: Source, path: Path, new: bytes) -> None:
    """Replace the content of one file. FileChangedError when it is not what was read."""
    write_all([Replacement(path, source.raw, new)])


def write_all(replacements: Sequence[Replacement]) -> None:
    """Replace all of them or none. FileChangedError when one is not what was read."""
    staged: list[_Staged] = []
    try:
        for replacement in replacements:
            check_writable(replacement.path)
            staged.append(_stage(replacement))
        if len({each.target for each in staged}) < len(staged):
            raise UsageError("two of these names are the same file; name it once")
        for each in staged:
            each.check()
        _put_all(staged)
    finally:
        for each in staged:
            each.temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """SpecchatError for a file that its owner made read-only: a rename would not ask."""
    mode = path.stat().st_mode
    if not mode & WRITABLE or not os.access(path, os.W_OK):
        raise SpecchatError(f"{path}: is read-only; 'chmod u+w' makes it writable")
    if not os.access(path.resolve().parent, os.W_OK):
        raise SpecchatError(f"{path}: its folder is read-only, and a safe write needs a new file there")


def _put_all(staged: Sequence[_Staged]) -> None:
    done: list[_Staged] = []
    try:
        for each in staged:
            done.append(each)
            each.put()
    except BaseException:
        for each in done:
            _take_back(each)
        raise


def _take_back(staged: _Staged) -> None:
    """The old content again, unless somebody else has written since."""
    wanted = staged.replacement
    with contextlib.suppress(OSError):
        if staged.target.read_bytes() == wanted.new != wanted.old:
            _stage(Replacement(wanted.path, wanted.new, wanted.old)).temporary.replace(staged.target)


def _stage(replacement: Replacement) -> _Staged:
    target = replacement.path.resolve(strict=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(replacement.new)
            _make_like(file.fileno(), target)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return _Staged(replacement, target, Path(temporary))


def _make_like(descriptor: int, target: Path) -> None:
    """Owner and mode of the file that is replaced; only root can give a file away."""
    old = target.stat()
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
