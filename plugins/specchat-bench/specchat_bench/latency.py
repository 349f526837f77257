"""The latency of an answer: time to first text, intervals between texts, and the whole request.

Works on any stream of events, from a session of this process or from the engine process. No torch.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from specchat.chat.events import Event, Failed, Finished, StepDone, TextDelta, ThinkingDelta, ToolCallDelta, Totals
from specchat.chat.streamed_calls import StreamedCalls
from specchat.errors import SpecchatError

OUTPUT_EVENTS = (TextDelta, ThinkingDelta, ToolCallDelta, StepDone)


@dataclass(frozen=True)
class TimedAnswer:
    """An answer and its times, in seconds."""

    text: str
    steps: tuple[StepDone, ...]
    totals: Totals
    ttft_seconds: float  # the whole request where there was no text
    text_intervals: tuple[float, ...]  # between texts
    request_seconds: float  # until the answer finished
    output_seconds: float  # until its last text, call or step; behind that, the engine may measure plain passes
    calls: tuple[tuple[str, str], ...] = ()  # of tools: name and arguments


def time_answer(events: Iterable[Event], clock: Callable[[], float] = perf_counter) -> TimedAnswer:
    """Consume the events of an answer; repeats at its end are no part of it.

    SpecchatError with the message of the engine when it fails.
    """
    started_at = last_output_at = clock()
    texts, steps, times, calls = list[str](), list[StepDone](), list[float](), StreamedCalls()
    for event in events:
        arrived_at = clock()
        if isinstance(event, OUTPUT_EVENTS):
            last_output_at = arrived_at
        match event:
            case TextDelta(text=text) if text:
                times.append(arrived_at)
                texts.append(text)
            case ToolCallDelta():
                calls.add(event)
            case StepDone():
                steps.append(event)
            case Failed(message=message):
                raise SpecchatError(message)
            case Finished(totals=totals):
                return TimedAnswer(
                    event.without_repeats("".join(texts)), tuple(event.kept_steps(steps)), totals,
                    ttft_seconds=(times[0] if times else arrived_at) - started_at,
                    text_intervals=tuple(later - earlier for earlier, later in pairwise(times)),
                    request_seconds=arrived_at - started_at,
                    output_seconds=last_output_at - started_at,
                    calls=tuple((call.name, call.arguments) for call in calls),
                )  # fmt: skip
    raise SpecchatError("the answer neither finished nor failed")


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that this fraction of all values does not exceed; 0 without values.

    >>> quantile([3, 1, 2, 4], 0.5)
    2
    """
    ranked = sorted(values)
    return ranked[max(math.ceil(fraction * len(ranked)) - 1, 0)] if ranked else 0.0
