"""A host whose engine keeps time instead of thinking: "300 60" is answered with 300 tokens a second for 60 seconds.

What is measured with it is the screen alone, over the real protocol. Each token is a number behind a "w", and the first
words tell when number 0 was due, by the clock that all processes of a machine share. No torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any

from specchat.chat.events import Committed, Event, Finished, Prefill, Routed, StepDone, Text, Totals
from specchat.chat.history import StoredTurn
from specchat.chat.request import Request
from specchat.host.engine_interface import Loader
from specchat.host.host_process import Parts, run_host
from specchat.host.open_sessions import Library
from specchat.host.spawn import configuration_hash

GUESSED = 3  # of every four tokens: a step commits as many as there are guesses, and one of the target


@dataclass(frozen=True)
class Beat:
    """A turn as the session keeps it."""

    user: str
    answer: str = ""
    seed: int = 0
    prompt_ids: tuple[int, ...] = ()
    answer_ids: tuple[int, ...] = ()
    rendered: str = ""


class MetronomeSession:
    """One conversation."""

    def __init__(self, turns: Sequence[Beat]) -> None:
        self.turns = list(turns)

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """Say every token when it is due; late ones are said at once, so that the source never slows down."""
        rate, seconds = (float(word) for word in request.text.split())
        self.turns.append(Beat(request.text))
        yield Prefill(1, 1)
        yield Routed("lookup", GUESSED, "it keeps time", 0)
        began = time.monotonic()
        yield Text(f"t0:{began:.6f}:\n\n")
        count, steps = round(rate * seconds), 0
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            if cancelled.is_set():
                break
            if number % (GUESSED + 1) == GUESSED:
                steps += 1
                yield _step((GUESSED + 1) / rate)
            yield Text(f"w{number:06d} ")
        yield Finished("cancelled" if cancelled.is_set() else "stop", Totals(tokens=count, steps=steps))

    def make_way(self, waiting: int, *, is_urgent: bool = False) -> None:
        """Time is kept, whoever waits."""

    def close(self) -> None:
        """Nothing is held."""


class Metronome:
    """The engine."""

    turns_at_once = 1

    def session(self, turns: Sequence[Beat], profile: str) -> MetronomeSession:
        """A conversation."""
        return MetronomeSession(turns)

    def memory(self) -> dict[str, int]:
        """No model."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


def _step(seconds: float) -> StepDone:
    guesses = tuple(range(GUESSED))
    said = (*(Committed(id, b"w", "lookup") for id in guesses), Committed(GUESSED, b"w", "target"))
    return StepDone(guesses, guesses, said, 0.0, seconds)


def _load(_profile: str, _progress: Callable[[Event], None], _cancelled: Flag) -> Metronome:
    return Metronome()


def _profile(name: str, _settings: dict[str, Any]) -> str:
    return name


def _restore(stored: StoredTurn) -> Beat:
    return Beat(str(stored.request.get("text", "")), stored.answered.text)


if __name__ == "__main__":
    parts = Parts(Library(_profile, _restore), Loader(_load, lambda profile: profile), configuration_hash)
    sys.exit(run_host(parts, sys.argv[1:]))
