"""What a client does while no event of its answer comes: it asks the host for the reason, and says it.

A host that computes answers such a question at once. One that does not answer is suspended or broken, and the answer
fails with a line that says how to end it, so that no front end waits forever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from specchat.chat.events import Event, Failed, LoadingProgress, Notice
from specchat.errors import HostError
from specchat.host.host_lock import describe_host
from specchat.host.protocol import JsonObject

SILENCE_SECONDS = 10.0
CANCEL_SECONDS = 3.0  # after a cancellation
UNANSWERED_SECONDS = 5.0  # until the user is told
GIVE_UP_SECONDS = 15.0
STOP_HINT = "'specchat host stop' ends it, and the next command starts a new one"


class Connection(Protocol):
    def send(self, method: str, params: Mapping[str, Any]) -> int: ...


@dataclass
class SilenceWatch:
    quiet_since: float = field(default_factory=time.monotonic)
    question_id: int | None = None  # of the question that the host has not answered yet
    asked_at: float = 0.0
    shown_reason: str = ""

    def on_event(self, event: Event) -> None:
        self.quiet_since = time.monotonic()
        if not isinstance(event, LoadingProgress):
            self.shown_reason = ""

    def on_silence(self, connection: Connection, turn_id: str, *, is_cancelled: bool) -> Iterator[Event]:
        """Ask the host after a while; a Notice when it does not answer, and Failed when it still does not."""
        now = time.monotonic()
        if self.question_id is None:
            if now - self.quiet_since >= (CANCEL_SECONDS if is_cancelled else SILENCE_SECONDS):
                self.question_id, self.asked_at = connection.send("waiting_reason", {"turn": turn_id}), now
        elif now - self.asked_at >= (CANCEL_SECONDS if is_cancelled else GIVE_UP_SECONDS):
            yield Failed.from_error(no_answer_error(now - self.quiet_since))
        elif now - self.asked_at >= UNANSWERED_SECONDS:
            yield from self._show(f"{describe_host()} does not answer")

    def on_reason(self, result: JsonObject) -> Iterator[Event]:
        """Say why nothing comes, once for each reason."""
        seconds, reason = time.monotonic() - self.quiet_since, str(result.get("reason", ""))
        self.question_id, self.quiet_since = None, time.monotonic()
        if reason:
            yield from self._show(reason, f", for {max(seconds, float(result.get('seconds', 0.0))):.0f} s so far")

    def _show(self, reason: str, duration: str = "") -> Iterator[Event]:
        if reason != self.shown_reason:
            self.shown_reason = reason
            yield Notice(f"{reason}{duration}; {STOP_HINT}")


def no_answer_error(seconds: float) -> HostError:
    return HostError(f"{describe_host()} has not answered for {seconds:.0f} s; {STOP_HINT}")
