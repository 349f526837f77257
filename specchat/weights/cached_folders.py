"""A folder in the cache that is made once: complete or not there, by one process while others wait.

It is written beside its place and renamed when it is complete, under a lock, so a crash leaves no half folder. Knows no
model.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from time import sleep

from specchat.file_lock import try_lock

UNFINISHED_SUFFIX = ".partial"
LOCK_RETRY_SECONDS = 0.2


def make_once(folder: Path, write_into: Callable[[Path], None], on_wait: Callable[[], None]) -> None:
    """Make the folder unless it is there. `write_into` fills it; `on_wait` is called while another process does."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(folder).open("a", encoding="ascii") as lock:
        while not try_lock(lock):
            on_wait()
            sleep(LOCK_RETRY_SECONDS)
        if not folder.is_dir():
            _make(folder, write_into)


def remove_unfinished(parent: Path) -> None:
    """Remove what crashes left below this folder, but nothing that a process is making."""
    for unfinished in (*parent.glob(f"*{UNFINISHED_SUFFIX}"), *parent.glob(f"*/*{UNFINISHED_SUFFIX}")):
        folder = unfinished.with_name(unfinished.name.removesuffix(UNFINISHED_SUFFIX))
        with _lock_file(folder).open("a", encoding="ascii") as lock:
            if try_lock(lock):
                shutil.rmtree(unfinished, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder that is not made again, and its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    _lock_file(folder).unlink(missing_ok=True)


def _make(folder: Path, write_into: Callable[[Path], None]) -> None:
    unfinished = folder.with_name(f"{folder.name}{UNFINISHED_SUFFIX}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        write_into(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
