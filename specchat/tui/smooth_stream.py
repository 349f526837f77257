"""When text that arrived is shown: a little at a time while all is well, everything at once when it piles up.

A pass of the target brings one token or ten; shown as it comes, text stutters. So each tick releases a share of what
waits. When too much waits, or for too long, all of it is released until the flow is quiet again. And where drawing is
dear, it is done less often. No clock is read here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TICK_SECONDS = 1 / 16
MANY_CHARACTERS = 320  # about eight lines of waiting text
FEW_CHARACTERS = 80
LONG_SECONDS = 0.15
CALM_SECONDS = 0.25
SHARE = 3  # a third of what waits is released with a tick
LEAST_CHARACTERS = 12
DRAWING_SHARE = 0.1  # of a core
LONGEST_WAIT_SECONDS = 0.25


@dataclass
class Pace:
    """Text in, text out, in order and complete."""

    waiting: str = ""
    since: float = 0.0  # when the oldest waiting character arrived
    is_catching_up: bool = False
    calm_since: float | None = field(default=None)

    def add(self, text: str, now: float) -> None:
        """Let text wait."""
        if not self.waiting:
            self.since = now
        self.waiting += text

    def take(self, now: float) -> str:
        """What is shown with this tick."""
        if not self.waiting:
            return ""
        if len(self.waiting) >= MANY_CHARACTERS or now - self.since >= LONG_SECONDS:
            self.is_catching_up, self.calm_since = True, None
        elif self.is_catching_up:
            self._calm_down(now)
        count = len(self.waiting) if self.is_catching_up else max(LEAST_CHARACTERS, len(self.waiting) // SHARE)
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        if not self.waiting:
            self.since = now
        return taken

    def rest(self) -> str:
        """All of it, at the end."""
        taken, self.waiting = self.waiting, ""
        self.is_catching_up, self.calm_since = False, None
        return taken

    def _calm_down(self, now: float) -> None:
        if len(self.waiting) > FEW_CHARACTERS:
            self.calm_since = None
        elif self.calm_since is None:
            self.calm_since = now
        elif now - self.calm_since >= CALM_SECONDS:
            self.is_catching_up, self.calm_since = False, None


@dataclass
class Thrift:
    """Lets drawing take no more than a share of a core, however slow the machine is; but never waits for long."""

    drawn_at: float = float("-inf")
    spent_then: float = 0.0

    def may_draw(self, now: float, spent: float) -> bool:
        """Is it time? `spent` are the CPU seconds of the thread that draws."""
        waited, spent_since = now - self.drawn_at, spent - self.spent_then
        if spent_since > DRAWING_SHARE * waited and waited < LONGEST_WAIT_SECONDS:
            return False
        self.drawn_at, self.spent_then = now, spent
        return True
