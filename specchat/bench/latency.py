"""The latency of an answer: time to first text, intervals between texts, and the whole request.

Works on any stream of events, from a session of this process or from the engine process. No torch.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from specchat.chat.events import Event, Failed, Finished, StepDone, TextDelta, ToolCallDelta, Totals
from specchat.chat.streamed_calls import StreamedCalls
from specchat.errors import SpecchatError


@dataclass(frozen=True)
class TimedAnswer:
    """An answer and its times, in seconds."""

    text: str
    steps: tuple[StepDone, ...]
    totals: Totals
    ttft_seconds: float  # the whole request where there was no text
    text_intervals: tuple[float, ...]  # between texts
    request_seconds: float  # until the answer finished
    calls: tuple[tuple[str, str], ...] = ()  # of tools: name and arguments


def time_answer(events: Iterable[Event], clock: Callable[[], float] = perf_counter) -> TimedAnswer:
    """Consume the events of an answer. SpecchatError with the message of the engine when it fails."""
    started_at = clock()
    texts, steps, times, calls = list[str](), list[StepDone](), list[float](), StreamedCalls()
    for event in events:
        match event:
            case TextDelta(text=text):
                times.append(clock())
                texts.append(text)
            case ToolCallDelta():
                calls.add(event)
            case StepDone():
                steps.append(event)
            case Failed(message=message):
                raise SpecchatError(message)
            case Finished(totals=totals):
                ended = clock()
                intervals = tuple(later - earlier for earlier, later in pairwise(times))
                first = (times[0] if times else ended) - started_at
                made = tuple((call.name, call.arguments) for call in calls)
                return TimedAnswer("".join(texts), tuple(steps), totals, first, intervals, ended - started_at, made)
    raise SpecchatError("the answer neither finished nor failed")


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that this fraction of all values does not exceed; 0 without values.

    >>> quantile([3, 1, 2, 4], 0.5)
    2
    """
    ranked = sorted(values)
    return ranked[max(math.ceil(fraction * len(ranked)) - 1, 0)] if ranked else 0.0
