"""When received text is shown: a little per tick normally, all of it when it piles up.

A step commits one token or ten; shown as it arrives, text stutters. So each tick releases a share of the buffered text.
When too much waits, or for too long, everything is released until the stream is quiet again. On a slow machine, drawing
happens less often. Reads no clock.
"""

from dataclasses import dataclass, field

TICK_SECONDS = 1 / 16
CATCH_UP_CHARACTERS = 320  # about eight lines
QUIET_CHARACTERS = 80
CATCH_UP_SECONDS = 0.15
QUIET_SECONDS = 0.25
RELEASE_DIVISOR = 3  # a tick releases a third of the buffer
MIN_CHARACTERS_PER_TICK = 12
MAX_DRAWING_SHARE = 0.1  # of a core
MAX_DRAW_DELAY_SECONDS = 0.25


@dataclass
class SmoothStream:
    buffered_text: str = ""
    buffered_since: float = 0.0  # arrival of the oldest buffered character
    is_catching_up: bool = False
    quiet_since: float | None = field(default=None)

    def add(self, text: str, now: float) -> None:
        if not self.buffered_text:
            self.buffered_since = now
        self.buffered_text += text

    def take_chunk(self, now: float) -> str:
        if not self.buffered_text:
            return ""
        if len(self.buffered_text) >= CATCH_UP_CHARACTERS or now - self.buffered_since >= CATCH_UP_SECONDS:
            self.is_catching_up, self.quiet_since = True, None
        elif self.is_catching_up:
            self._leave_catch_up(now)
        count = (
            len(self.buffered_text)
            if self.is_catching_up
            else max(MIN_CHARACTERS_PER_TICK, len(self.buffered_text) // RELEASE_DIVISOR)
        )
        taken, self.buffered_text = self.buffered_text[:count], self.buffered_text[count:]
        if not self.buffered_text:
            self.buffered_since = now
        return taken

    def flush(self) -> str:
        taken, self.buffered_text = self.buffered_text, ""
        self.is_catching_up, self.quiet_since = False, None
        return taken

    def _leave_catch_up(self, now: float) -> None:
        if len(self.buffered_text) > QUIET_CHARACTERS:
            self.quiet_since = None
        elif self.quiet_since is None:
            self.quiet_since = now
        elif now - self.quiet_since >= QUIET_SECONDS:
            self.is_catching_up, self.quiet_since = False, None


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
