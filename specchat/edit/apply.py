"""Writing a file so that nobody ever sees half of it: a temporary file beside it, and then one rename."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from specchat.edit.source import Source
from specchat.errors import FileChangedError


def write(source: Source, path: Path, new: bytes) -> None:
    """Replace the file by its new content; a link stays a link. FileChangedError when it is not what was read."""
    target = path.resolve(strict=True)
    if target.read_bytes() != source.raw:
        raise FileChangedError(f"{path}: was changed meanwhile; nothing is written, run the edit again")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new)
            _make_like(file.fileno(), target)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


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
