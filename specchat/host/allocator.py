"""Gives memory that the C library keeps for later back to the system.

Tensors of an answer are freed in pieces between those that stay, and the allocator of glibc keeps such pieces: of the
memory of many small conversations a fourth. Other C libraries have no such call, and return memory in their own way.
"""

from __future__ import annotations

import ctypes
import sys

KEPT_BYTES = 0  # at the end of the heap


def release_free_memory() -> None:
    """Return free pages. Takes milliseconds; used when no request waits."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(ctypes.c_size_t(KEPT_BYTES))
