"""The resident memory of processes, as Linux reports it."""

import os
from pathlib import Path

PROC = Path("/proc")


def resident_bytes(pid: int) -> int | None:
    """Resident bytes of a process; None without /proc, or when the process has ended."""
    try:
        pages = (PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
