"""What the processes of a conversation take of memory, the screen's own and the engine's, as the system says it."""

from __future__ import annotations

import os
from pathlib import Path

from specchat.tui.glyphs import Glyphs
from specchat.tui.status_text import format_bytes

PROC = Path("/proc")


def memory_line(engine_pid: int, glyphs: Glyphs) -> str:
    """For example: memory of the screen 92M · of the engine process 1.2G.

    `engine` is the id of its process, 0 where nobody knows. What the system does not say is left out, with all of the
    line if need be.
    """
    taken = {
        "the screen": resident_bytes(os.getpid()),
        "the engine process": resident_bytes(engine_pid) if engine_pid else None,
    }
    named = [f"of {name} {format_bytes(count)}" for name, count in taken.items() if count]
    return f"memory {f' {glyphs.dot} '.join(named)}" if named else ""


def resident_bytes(pid: int) -> int | None:
    """What of a process lies in memory now; None where the system keeps no such table, or the process is gone."""
    try:
        pages = (PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
