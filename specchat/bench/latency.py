"""What waiting for an answer is like: until its first text, between its texts, and until it is whole.

Hears events wherever they come from: from a session of this process, or over the wire from the engine process, which is
what a front end sees. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from specchat.chat.events import Event, Failed, Finished, StepDone, TextDelta, Totals
from specchat.errors import SpecchatError


@dataclass(frozen=True)
class TimedAnswer:
    """An answer, and the seconds of who heard it."""

    text: str
    steps: tuple[StepDone, ...]
    totals: Totals
    ttft_seconds: float  # until the first text; the whole, where none came
    text_intervals: tuple[float, ...]  # between texts
    request_seconds: float  # until the answer was finished


def time_answer(events: Iterable[Event], clock: Callable[[], float] = perf_counter) -> TimedAnswer:
    """Listen to an answer until its end. SpecchatError, in the words of the engine, when it fails."""
    begun = clock()
    texts, steps, times = list[str](), list[StepDone](), list[float]()
    for event in events:
        match event:
            case TextDelta(text=text):
                times.append(clock())
                texts.append(text)
            case StepDone():
                steps.append(event)
            case Failed(message=message):
                raise SpecchatError(message)
            case Finished(totals=totals):
                ended = clock()
                gaps = tuple(later - earlier for earlier, later in pairwise(times))
                first = (times[0] if times else ended) - begun
                return TimedAnswer("".join(texts), tuple(steps), totals, first, gaps, ended - begun)
    raise SpecchatError("the answer neither finished nor failed")


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that so large a share of all does not exceed; 0 of nothing.

    >>> quantile([3, 1, 2, 4], 0.5)
    2
    """
    ranked = sorted(values)
    return ranked[max(math.ceil(fraction * len(ranked)) - 1, 0)] if ranked else 0.0
