"""Atomic file writes: a temporary file beside each target, then one rename.

All temporary files are complete before the first rename. When one rename fails, the earlier targets get their old
content back. A symbolic link stays a link; a hard link is refused, because a rename would separate it from its other
names. A killed process may leave a part of the files, and hidden temporary files with TEMPORARY_SUFFIX beside them;
`undo_store.py` puts both right at the next start.

A missing file is a state like any content, so files can also be created and removed, all of them or none.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import FileChangedError, SpecchatError, UsageError

TEMPORARY_SUFFIX = ".specchat"
WRITE_PERMISSION_BITS = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Replacement:
    """A file with its old and its new content; None where there is no file."""

    path: Path
    old: bytes | None
    new: bytes | None

    @property
    def target(self) -> Path:
        """The real file. A link is followed when content is replaced, but not when a file is created or removed.

        OSError when the file, or the folder of a new file, does not exist.
        """
        if self.old is None or self.new is None:
            return self.path.parent.resolve(strict=True) / self.path.name
        return self.path.resolve(strict=True)


@dataclass(frozen=True)
class _StagedWrite:
    """New content in a temporary file, one rename away from the target; or the name to move a removed file to."""

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
        """Restore the old content, unless another process has written the file since."""
        replacement = self.replacement
        if read_content(self.target) != replacement.new or replacement.new == replacement.old:
            return
        if replacement.old is None:
            self.target.unlink()
        elif replacement.new is None:
            if self.temporary.read_bytes() == replacement.old:  # otherwise another process removed the file
                _rename_without_replacing(self.temporary, self.target)
        else:
            _stage(Replacement(replacement.path, replacement.new, replacement.old)).temporary.replace(self.target)


def write_files(replacements: Sequence[Replacement]) -> None:
    """Replace all files or none. FileChangedError when one no longer has the content that was read."""
    staged: list[_StagedWrite] = []
    try:
        for replacement in replacements:
            _check_can_write(replacement)
            staged.append(_stage(replacement))
        if len({each.target for each in staged}) < len(staged):
            raise UsageError("two of these names are the same file")
        for each in staged:
            each.check_unchanged()
        _apply_all(staged)
    finally:
        for each in staged:
            each.temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """SpecchatError for a read-only file: a rename would ignore its permissions."""
    status = path.stat()
    mode = status.st_mode
    if status.st_nlink > 1:
        raise SpecchatError(
            f"{path}: has {status.st_nlink} hard links, and an edit would separate this name from the others; "
            "edit a copy, or make this name a symbolic link"
        )
    if not mode & WRITE_PERMISSION_BITS or not os.access(path, os.W_OK):
        raise SpecchatError(f"{path}: is read-only; 'chmod u+w' makes it writable")
    _check_folder_writable(path, path.resolve().parent)


def read_content(path: Path) -> bytes | None:
    """The content of a file, None if it is missing. OSError if it is unreadable or a broken link."""
    return path.read_bytes() if os.path.lexists(path) else None


def _check_can_write(replacement: Replacement) -> None:
    path = replacement.path
    if replacement.old is None:
        _check_folder_writable(path, path.parent.resolve(strict=True))
    else:
        check_writable(path)


def _check_folder_writable(path: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK):
        raise SpecchatError(f"{path}: its folder is read-only, and an atomic write needs a temporary file there")


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
    descriptor, temporary = tempfile.mkstemp(TEMPORARY_SUFFIX, _temporary_prefix(target), target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(replacement.new or b"")
            if hasattr(os, "fchmod"):  # Windows gives a file the rights of its folder
                _set_owner_and_mode(file.fileno(), target if replacement.old is not None else None)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return _StagedWrite(replacement, target, Path(temporary))


def remove_temporaries(target: Path) -> None:
    """Remove what a killed process left beside a target. No other process may write it meanwhile."""
    if target.parent.is_dir():
        for each in target.parent.iterdir():
            if each.name.startswith(_temporary_prefix(target)) and each.name.endswith(TEMPORARY_SUFFIX):
                each.unlink(missing_ok=True)


def _temporary_prefix(target: Path) -> str:
    return f".{target.name[:100]}."


def _rename_without_replacing(temporary: Path, target: Path) -> None:
    """Rename, but never replace: FileChangedError when the target exists by now."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise FileChangedError(f"{target}: was created meanwhile by another process; nothing is written") from None
    except OSError:  # a file system without hard links
        target.open("xb").close()
        temporary.replace(target)


def _set_owner_and_mode(descriptor: int, target: Path | None) -> None:
    """Copy owner and mode of the replaced file; only root can change the owner. A new file has the usual mode."""
    if target is None:
        os.fchmod(descriptor, 0o666 & ~_umask())
        return
    old = target.stat()
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # which opens no folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The umask of the process. It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
