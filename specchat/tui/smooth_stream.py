"""When received text is shown: a share of it per tick, so that steps of one token and of ten do not stutter.

A character waits about RELEASE_SECONDS, and much text does not wait. On a slow machine, drawing happens less often.
Reads no clock.
"""

from dataclasses import dataclass

TICK_SECONDS = 1 / 16
RELEASE_SECONDS = 3 * TICK_SECONDS
MAX_WAITING_CHARACTERS = 320  # about eight lines
MIN_CHARACTERS_PER_TICK = 12
MAX_DRAWING_SHARE = 0.1  # of a core
MAX_DRAW_DELAY_SECONDS = 0.25


@dataclass
class SmoothStream:
    waiting_text: str = ""
    released_at: float = 0.0  # when the last part was taken

    def add(self, text: str, now: float) -> None:
        if not self.waiting_text:
            self.released_at = now - TICK_SECONDS
        self.waiting_text += text

    def take_chunk(self, now: float) -> str:
        """The text to show now: the longer ago the last one was taken, the more."""
        count = len(self.waiting_text)
        if count < MAX_WAITING_CHARACTERS:
            share = (now - self.released_at) / RELEASE_SECONDS
            count = max(MIN_CHARACTERS_PER_TICK, int(count * share))
        self.released_at = now
        taken, self.waiting_text = self.waiting_text[:count], self.waiting_text[count:]
        return taken

    def flush(self) -> str:
        taken, self.waiting_text = self.waiting_text, ""
        return taken


@dataclass
class DrawThrottle:
    """Limits drawing to a share of a core, but never delays it for long."""

    drawn_at: float = float("-inf")
    cpu_seconds_at_draw: float = 0.0

    def may_draw(self, now: float, cpu_seconds: float) -> bool:
        """Whether to draw now; `cpu_seconds` is the CPU time of the drawing thread."""
        waited, spent_since = now - self.drawn_at, cpu_seconds - self.cpu_seconds_at_draw
        if spent_since > MAX_DRAWING_SHARE * waited and waited < MAX_DRAW_DELAY_SECONDS:
            return False
        self.drawn_at, self.cpu_seconds_at_draw = now, cpu_seconds
        return True
