"""How far a long command is, and how long it goes on: in a line on stderr now and then.

Knows nothing of the work.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from specchat.cli.notes import print_note

FIRST_LINE_SECONDS, LINE_SECONDS = 5.0, 15.0


@dataclass
class WorkProgress:
    started_at: float = field(default_factory=time.monotonic)
    _next_line_at: float = FIRST_LINE_SECONDS  # since the start

    def show(self, label: str, done: float, total: float) -> None:
        elapsed = time.monotonic() - self.started_at
        if elapsed >= self._next_line_at:
            self._next_line_at = elapsed + LINE_SECONDS
            left = f", about {duration_text(elapsed * (total - done) / done)} left" if done else ""
            print_note(f"specchat: {label}: {done / total:.0%}".replace("%", " %") + left)


def duration_text(seconds: float) -> str:
    """For example: 8 s, 2 min."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
