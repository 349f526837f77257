"""When text that arrived is shown: a little at a time while all is well, everything at once when it piles up.

A pass of the target brings one token or ten; shown as it comes, text stutters. So each tick releases a share of what
waits. When too much waits, or for too long, all of it is released until the flow is quiet again. And where drawing is
dear, it is done less often. No clock is read here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TICK_SECONDS = 1 / 16
CATCH_UP_CHARACTERS = 320  # about eight lines of waiting text
QUIET_CHARACTERS = 80
CATCH_UP_SECONDS = 0.15
QUIET_SECONDS = 0.25
RELEASE_DIVISOR = 3  # a third of what waits is released with a tick
MIN_CHARACTERS_PER_TICK = 12
MAX_DRAWING_SHARE = 0.1  # of a core
MAX_DRAW_DELAY_SECONDS = 0.25


@dataclass
class SmoothStream:
    """Text in, text out, in order and complete."""

    buffered_text: str = ""
    buffered_since: float = 0.0  # when the oldest waiting character arrived
    is_catching_up: bool = False
    quiet_since: float | None = field(default=None)

    def add(self, text: str, now: float) -> None:
        """Let text wait."""
        if not self.buffered_text:
            self.buffered_since = now
        self.buffered_text += text

    def take_chunk(self, now: float) -> str:
        """What is shown with this tick."""
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
        """All of it, at the end."""
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
    """Lets drawing take no more than a share of a core, however slow the machine is; but never waits for long."""

    drawn_at: float = float("-inf")
    cpu_seconds_at_draw: float = 0.0

    def may_draw(self, now: float, cpu_seconds: float) -> bool:
        """Is it time? `spent` are the CPU seconds of the thread that draws."""
        waited, spent_since = now - self.drawn_at, cpu_seconds - self.cpu_seconds_at_draw
        if spent_since > MAX_DRAWING_SHARE * waited and waited < MAX_DRAW_DELAY_SECONDS:
            return False
        self.drawn_at, self.cpu_seconds_at_draw = now, cpu_seconds
        return True
