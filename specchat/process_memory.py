"""The memory of a process: how much is resident, what stays to its end, and what goes back to the system."""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PROC = Path("/proc")
atexit.register(gc.unfreeze)  # libraries report what is alive after the last collection as leaked
_has_permanent = False  # `gc.get_freeze_count` would count all of them, one by one


def resident_bytes(pid: int) -> int | None:
    """Resident bytes of a process; None without /proc, or when the process has ended."""
    pages = _resident_pages(pid)
    return pages and pages[0]


def mapped_bytes() -> int:
    """Those of this process that are in files, mostly of libraries: the system takes them where it needs memory."""
    pages = _resident_pages(os.getpid())
    return pages[1] if pages else 0


def own_bytes() -> int:
    """All others of this process; 0 without /proc."""
    pages = _resident_pages(os.getpid())
    return pages[0] - pages[1] if pages else 0


def with_growth(make: Callable[[], T]) -> tuple[T, int]:
    """What is made, and by how much this process has grown for it. Freed memory is given back before and after."""
    release_free_memory()
    before = own_bytes()
    made = make()
    release_free_memory()
    return made, max(own_bytes() - before, 0)


def _resident_pages(pid: int) -> tuple[int, int] | None:
    """The bytes of all resident pages, and of those in files."""
    try:
        _size, resident, in_files, *_ = map(int, (PROC / str(pid) / "statm").read_text(encoding="ascii").split())
        return resident * os.sysconf("SC_PAGE_SIZE"), in_files * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


@contextmanager
def permanent_objects() -> Generator[None]:
    """What is alive at the end of the block is never looked through for garbage; inside it, nothing is.

    Python would look through libraries and models, hundreds of thousands of objects, while they are made, and in the
    middle of an answer again, for a tenth of a second. For processes of our own only: a library must not decide this.
    """
    global _has_permanent
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        _has_permanent = True
        if was_enabled:
            gc.enable()


def collect_all() -> None:
    """Free what is unused now, of permanent objects, too: a model that is no longer needed is one."""
    gc.unfreeze()
    gc.collect()
    if _has_permanent:
        gc.freeze()


def release_free_memory() -> None:
    """Return free pages to the system. Takes milliseconds; used when no request waits.

    Tensors of an answer are freed in pieces between those that stay, and the allocator of glibc keeps such pieces: of
    the memory of many small conversations a fourth. Other C libraries have no such call, and return memory themselves.
    """
    import ctypes  # the screen asks for memory and returns none

    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(ctypes.c_size_t(0))  # nothing is kept at the end of the heap
