"""A disk without room, for this process only and without any right: files cannot grow beyond a size."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

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
