"""Writing files so that nobody ever sees half of one: a temporary file beside each, and then one rename.

Several files are all made ready before the first is replaced; when one cannot be, those before it get their old content
back. A link stays a link. What a killed process may leave behind is a hidden file beside the real one.

That there is no file is a state like any content: files are also made, and removed again, all of them or none.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.edit.source_text import Source
from specchat.errors import FileChangedError, SpecchatError, UsageError

WRITE_PERMISSION_BITS = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Replacement:
    """A file, what it holds and what it shall hold; None where there is no file."""

    path: Path
    old: bytes | None
    new: bytes | None

    @property
    def target(self) -> Path:
        """The file itself: a link is followed to what is replaced, but who makes or removes a file means the name.

        OSError when there is no such file, or no folder for one that is to be made.
        """
        if self.old is None or self.new is None:
            return self.path.parent.resolve(strict=True) / self.path.name
        return self.path.resolve(strict=True)


@dataclass(frozen=True)
class _StagedWrite:
    """A new content on disk, one rename away from its place; or the place to which a file goes that is removed."""

    replacement: Replacement
    target: Path
    temporary: Path

    def check_unchanged(self) -> None:
        old, path = self.replacement.old, self.replacement.path
        if os.path.lexists(self.target) if old is None else self.target.read_bytes() != old:
            raise FileChangedError(f"{path}: was changed meanwhile; nothing is written, run the edit again")

    def apply(self) -> None:
        if self.replacement.new is None:
            self.target.replace(self.temporary)
        elif self.replacement.old is None:
            _rename_without_replacing(self.temporary, self.target)
        else:
            self.temporary.replace(self.target)
        _sync_folder(self.target.parent)

    def roll_back(self) -> None:
        """As it was, unless somebody else has written since."""
        wanted = self.replacement
        if read_content(self.target) != wanted.new or wanted.new == wanted.old:
            return
        if wanted.old is None:
            self.target.unlink()
        elif wanted.new is None:
            if self.temporary.read_bytes() == wanted.old:  # else it went without us
                _rename_without_replacing(self.temporary, self.target)
        else:
            _stage(Replacement(wanted.path, wanted.new, wanted.old)).temporary.replace(self.target)


def write_file(source: Source, path: Path, new: bytes) -> None:
    """Replace the content of one file. FileChangedError when it is not what was read."""
    write_files([Replacement(path, source.raw, new)])


def write_files(replacements: Sequence[Replacement]) -> None:
    """Replace all of them or none. FileChangedError when one is not what was read."""
    staged: list[_StagedWrite] = []
    try:
        for replacement in replacements:
            _check_can_write(replacement)
            staged.append(_stage(replacement))
        if len({each.target for each in staged}) < len(staged):
            raise UsageError("two of these names are the same file; name it once")
        for each in staged:
            each.check_unchanged()
        _apply_all(staged)
    finally:
        for each in staged:
            each.temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """SpecchatError for a file that its owner made read-only: a rename would not ask."""
    mode = path.stat().st_mode
    if not mode & WRITE_PERMISSION_BITS or not os.access(path, os.W_OK):
        raise SpecchatError(f"{path}: is read-only; 'chmod u+w' makes it writable")
    _check_folder_writable(path, path.resolve().parent)


def read_content(path: Path) -> bytes | None:
    """What a file holds, None when there is none. OSError when it cannot be read, and for a link that leads nowhere."""
    return path.read_bytes() if os.path.lexists(path) else None


def _check_can_write(replacement: Replacement) -> None:
    path = replacement.path
    if replacement.old is None:
        _check_folder_writable(path, path.parent.resolve(strict=True))
    else:
        check_writable(path)


def _check_folder_writable(path: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK):
        raise SpecchatError(f"{path}: its folder is read-only, and a safe write needs a new file there")


def _apply_all(staged: Sequence[_StagedWrite]) -> None:
    done: list[_StagedWrite] = []
    try:
        for each in staged:
            done.append(each)
            each.apply()
    except BaseException:
        for each in done:
            with contextlib.suppress(OSError):
                each.roll_back()
        raise


def _stage(replacement: Replacement) -> _StagedWrite:
    target = replacement.target
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(replacement.new or b"")
            if replacement.old is None:
                os.fchmod(file.fileno(), 0o666 & ~_umask())
            else:
                _copy_owner_and_mode(file.fileno(), target)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return _StagedWrite(replacement, target, Path(temporary))


def _rename_without_replacing(temporary: Path, target: Path) -> None:
    """A rename that replaces nothing. FileChangedError when there is a file by now."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise FileChangedError(f"{target}: was made meanwhile by somebody else; nothing is written") from None
    except OSError:  # a file system without hard links
        target.open("xb").close()
        temporary.replace(target)


def _copy_owner_and_mode(descriptor: int, target: Path) -> None:
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


def _umask() -> int:
    """Which rights new files do not get; there is no way to ask without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
