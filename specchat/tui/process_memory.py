"""The resident memory of the TUI and of the engine process, as Linux reports it."""

from __future__ import annotations

import os
from pathlib import Path

from specchat.tui.glyphs import Glyphs
from specchat.tui.status_text import format_bytes

PROC = Path("/proc")


def memory_line(engine_pid: int, glyphs: Glyphs) -> str:
    """For example: memory of the screen 92M · of the engine process 1.2G.

    `engine_pid` is 0 when unknown. Unknown values are left out, and the whole line if both are.
    """
    sizes = {
        "the screen": resident_bytes(os.getpid()),
        "the engine process": resident_bytes(engine_pid) if engine_pid else None,
    }
    parts = [f"of {name} {format_bytes(count)}" for name, count in sizes.items() if count]
    return f"memory {f' {glyphs.dot} '.join(parts)}" if parts else ""


def resident_bytes(pid: int) -> int | None:
    """Resident bytes of a process; None without /proc, or when the process has ended."""
    try:
        pages = (PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
