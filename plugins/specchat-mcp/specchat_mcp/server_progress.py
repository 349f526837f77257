"""How far a server is with a call, as lines for a person. Knows no connection and no front end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from specchat_mcp.server_errors import shown_line

MAX_WAITING = 10  # newest lines that are kept until the front end takes them
MAX_MESSAGE = 100
PERCENT_STEP = 10


class ServerProgress:
    """The reports of one call. Equal lines after each other are one; the event loop reports, another thread takes."""

    def __init__(self) -> None:
        self._lines, self._last = deque[str](maxlen=MAX_WAITING), ""

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        line = progress_line(progress, total, message)
        if line != self._last:
            self._last = line
            self._lines.append(line)

    def take_lines(self) -> Iterator[str]:
        while self._lines:
            yield self._lines.popleft()


def progress_line(progress: float, total: float | None, message: str | None) -> str:
    """For example "indexing (40 %)", "40 %" or "3"; percent in steps, so that a line stays for a while."""
    has_share = total is not None and math.isfinite(progress) and math.isfinite(total) and total > 0
    if total is not None and has_share:
        share = min(max(progress / total, 0.0), 1.0)
        amount = f"{int(100 * share) // PERCENT_STEP * PERCENT_STEP} %"
    else:
        amount = f"{progress:g}"
    text = shown_line(message or "", MAX_MESSAGE).strip()
    if not text:
        return amount
    return f"{text} ({amount})" if has_share else text
