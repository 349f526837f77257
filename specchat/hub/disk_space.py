"""What a download needs of the disk: free space, and errors of one line. Knows no hub and no index."""

import errno
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from specchat.errors import ModelError


def free_bytes(folder: Path) -> int:
    """The free space on the disk where this folder is or will be."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def format_bytes(size: int) -> str:
    """Format bytes in decimal units: 16.4 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def check_disk_space(what: str, needed: int, folder: Path, variable: str) -> None:
    """ModelError when the disk has not enough space; `variable` moves the folder to another one."""
    if needed > (free := free_bytes(folder)):
        raise ModelError(
            f"{what}: the download needs {format_bytes(needed)}, and {format_bytes(free)} are free at {folder}; free "
            f"some space, or set {variable} to a folder on a larger disk"
        )


@contextmanager
def disk_errors_as_model_errors(source: str, folder: Path, remaining_bytes: Callable[[], int]) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # not from the disk: errors of the hub are OSErrors, too
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needed = format_bytes(remaining_bytes())
            raise ModelError(f"{source}: the disk at {folder} is full; free {needed} and run this again") from error
        raise ModelError(f"{source}: cannot be stored in {folder}: {error.strerror or error}") from error
