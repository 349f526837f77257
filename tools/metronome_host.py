"""A host with a fake engine of a fixed rate: "300 60" is answered with 300 tokens per second for 60 seconds.

It measures the screen alone, over the real protocol. Each token is a "w" with a number, and the first words give the
due time of number 0 on the clock that all processes of a machine share. No torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any

from specchat.chat.events import CommittedToken, Event, Finished, PrefillProgress, Routed, StepDone, TextDelta, Totals
from specchat.chat.request import Request
from specchat.history.history_reader import StoredTurn
from specchat.host.engine_interface import EngineLoader
from specchat.host.host_process import HostComponents, run_host
from specchat.host.open_sessions import SessionCallbacks
from specchat.host.spawn import configuration_hash

DRAFTED_PER_STEP = 3  # a step commits the draft tokens and one token of the target


@dataclass(frozen=True)
class FakeTurn:
    """A stored turn."""

    user: str
    answer: str = ""
    seed: int = 0
    prompt_ids: tuple[int, ...] = ()
    answer_ids: tuple[int, ...] = ()
    rendered_prompt: str = ""


class FixedRateSession:
    """One conversation."""

    def __init__(self, turns: Sequence[FakeTurn]) -> None:
        self.turns = list(turns)

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """Say every token when it is due; late ones are said at once, so that the source never slows down."""
        rate, seconds = (float(word) for word in request.text.split())
        self.turns.append(FakeTurn(request.text))
        yield PrefillProgress(1, 1)
        yield Routed("lookup", DRAFTED_PER_STEP, "it keeps time", 0)
        began = time.monotonic()
        yield TextDelta(f"t0:{began:.6f}:\n\n")
        count, steps = round(rate * seconds), 0
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            if cancelled.is_set():
                break
            if number % (DRAFTED_PER_STEP + 1) == DRAFTED_PER_STEP:
                steps += 1
                yield _step((DRAFTED_PER_STEP + 1) / rate)
            yield TextDelta(f"w{number:06d} ")
        yield Finished("cancelled" if cancelled.is_set() else "stop", Totals(completion_tokens=count, steps=steps))

    def memory_bytes(self) -> dict[str, int]:
        """No text is kept."""
        return {}

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """Ignore the load; the rate is fixed."""

    def close(self) -> None:
        """Nothing to free."""


class FixedRateEngine:
    """The engine."""

    max_concurrent_turns = 1
    variants = frozenset({"auto", "plain", "lookup"})

    def create_session(self, turns: Sequence[FakeTurn], profile: str) -> FixedRateSession:
        """A conversation."""
        return FixedRateSession(turns)

    def memory_bytes(self) -> dict[str, int]:
        """No model."""
        return {}

    def activate(self) -> None:
        """No threads to set."""

    def close(self) -> None:
        """Nothing to free."""


def _step(seconds: float) -> StepDone:
    draft_tokens = tuple(range(DRAFTED_PER_STEP))
    committed = (
        *(CommittedToken(id, b"w", "lookup") for id in draft_tokens),
        CommittedToken(DRAFTED_PER_STEP, b"w", "target"),
    )
    return StepDone(draft_tokens, draft_tokens, committed, 0.0, seconds)


def _load_engine(_profile: str, _progress: Callable[[Event], None], _cancelled: Flag) -> FixedRateEngine:
    return FixedRateEngine()


def _profile_name(name: str, _settings: dict[str, Any]) -> str:
    return name


def _turn_from_history(stored: StoredTurn) -> FakeTurn:
    return FakeTurn(str(stored.request.get("text", "")), stored.answer.text)


if __name__ == "__main__":
    parts = HostComponents(
        SessionCallbacks(_profile_name, _turn_from_history),
        EngineLoader(_load_engine, lambda profile: profile),
        configuration_hash,
    )
    sys.exit(run_host(parts, sys.argv[1:]))
