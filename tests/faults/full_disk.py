"""A disk without room: for this process only and without any right, or a real one of a few pages in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

without_limits = pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no files of a process")


@contextmanager
def full_disk(free_bytes: int = 0) -> Generator[None]:
    """Each write beyond the first bytes of a file raises OSError, as on a full disk."""
    import resource

    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def mount(*arguments: object) -> None:
    """A skip where this user may not mount."""
    if sys.platform != "linux":
        pytest.skip("a disk in memory is one of Linux")
    ran = subprocess.run(
        ["mount", "-t", "tmpfs", *map(str, arguments)], capture_output=True, text=True, check=False
    )  # fmt: skip
    if ran.returncode:
        pytest.skip(f"this user may not mount: {ran.stderr.strip()}")


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Generator[Path]:
    """A disk of this size at a new folder."""
    folder.mkdir(mode=0o700)
    mount("-o", f"size={size_bytes},mode=0700", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def grow(folder: Path, size_bytes: int) -> None:
    mount("-o", f"remount,size={size_bytes}", "tmpfs", folder)


def fill(folder: Path) -> None:
    """Leave no byte."""
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass
