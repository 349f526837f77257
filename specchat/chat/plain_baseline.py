"""How long plain decoding would have taken for the same tokens: the baseline of every "x plain".

A step of plain decoding is a pass over one row. So the baseline needs to know what a pass with draft tokens costs
relative to a pass over one row. That is measured as a ratio: of passes of both kinds that ran within a few steps of
each other, in this conversation. Other load on the machine slows both, so the ratio stays when the load changes, and
the duration of a drafted pass tells how long a plain one would have taken at that moment. The interval follows from
the number of compared passes and from their scatter.

Knows durations and rows only: no model, no text and no screen.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low, pstdev
from typing import Self

from specchat.chat.events import MAX_SHOWN_ERROR, of_first_tokens

NEARBY_PASSES = 4  # a pass is compared with those of the other kind among so many passes before it
MAX_COMPARISONS = 120  # the latest ones; older ones are forgotten
PROBE_TIME_SHARE, PROBE_SECONDS = 0.04, 0.12  # for passes that only measure: this share of an answer, or unnoticed time
MAX_PROBES = 16  # such passes of one answer; more of them narrow its interval little
MAX_UNREAD_SHARE = 1 / 8  # of the comparisons, while an answer is written: a median of many changes little with each
MIN_ROBUST_PASSES = 8  # of each kind, from which on the scatter may ignore outliers
MIN_SCATTER = 0.05  # assumed for a pass, relative, however well a few passes agree
SINGLE_SCATTER = 0.2  # assumed while there is only one comparison
MEDIAN_ERROR = 1.25  # standard error of a median, relative to that of a mean
MAD_TO_DEVIATION = 1.48  # the standard deviation, relative to the median absolute deviation
T_VALUES = (6.0, 4.3, 3.2, 2.8, 2.6, 2.5, 2.4, 2.3)  # Student's t for 95 %, by degrees of freedom
LARGE_SAMPLE_T_VALUE = 2.1
NORMAL_INTERVAL = 1.96  # half of a 95 % interval, in standard deviations


@dataclass(frozen=True)
class PlainEstimate:
    """The time of plain decoding for the same tokens, and half of its 95 % interval, relative."""

    seconds: float
    error: float


UNKNOWN_ESTIMATE = PlainEstimate(0.0, 0.0)


@dataclass(frozen=True)
class _Pass:
    number: int
    rows: int
    seconds: float

    @property
    def is_plain(self) -> bool:
        return self.rows == 1


@dataclass(frozen=True)
class _Comparison:
    """A pass with draft tokens and a pass over one row that ran near it."""

    drafted: _Pass
    plain: _Pass
    log_ratio: float  # of their durations

    @classmethod
    def of(cls, drafted: _Pass, plain: _Pass) -> Self:
        return cls(drafted, plain, math.log(drafted.seconds / plain.seconds))


@dataclass(frozen=True)
class _Step:
    rows: int
    tokens: int
    seconds: float

    def first(self, tokens: int) -> Self:
        return replace(self, tokens=min(tokens, self.tokens))


@dataclass(frozen=True)
class _Correction:
    """By which factor drafted passes cost more than expected, half of its 95 % interval, and the scatter of a pass."""

    factor: float
    error: float  # relative
    scatter: float  # relative


class PlainBaseline:
    """The passes of a conversation.

    `relative_cost` is the expected cost of a pass over so many rows, relative to one row. Only its shape matters: the
    factor by which it is wrong on the whole is measured.
    """

    def __init__(self, relative_cost: Callable[[int], float]) -> None:
        self._relative_cost = relative_cost
        self._steps: list[_Step] = []  # of this answer
        self._probe_seconds, self._probes = 0.0, 0  # in this answer
        self._recent_passes: deque[_Pass] = deque(maxlen=NEARBY_PASSES)  # of this answer
        self._comparisons: deque[_Comparison] = deque(maxlen=MAX_COMPARISONS)
        self._correction: _Correction | None = None
        self._unread_comparisons = 0  # that the correction does not contain
        self._pass_count = 0

    def start_answer(self) -> None:
        """Start an answer. The comparisons of earlier ones stay; their passes are compared with no later pass."""
        self._steps, self._probe_seconds, self._probes = [], 0.0, 0
        self._recent_passes.clear()

    def add_step(self, rows: int, tokens: int, seconds: float) -> PlainEstimate:
        """Add a step of the answer: the rows and the duration of its pass, and the tokens that it committed.

        Returns the time of plain decoding for these tokens, as known so far; 0 when unknown.
        """
        self._steps.append(_Step(rows, tokens, seconds))
        self._add_pass(rows, seconds)
        if self._unread_comparisons > MAX_UNREAD_SHARE * len(self._comparisons):
            self._correction = None
        return self.step_estimate(rows, tokens, seconds) or UNKNOWN_ESTIMATE

    def cut(self, tokens: int) -> None:
        """Only the first tokens of the answer count."""
        self._steps = list(of_first_tokens(self._steps, tokens))

    def add_probe(self, rows: int, seconds: float) -> None:
        """Add a pass that only measures."""
        self._probe_seconds += seconds
        self._probes += 1
        self._add_pass(rows, seconds)

    def rows_to_probe(self) -> int | None:
        """The rows of the next pass that should measure, at the end of an answer; None when no more is needed.

        One where nothing was compared yet; more, in turn with draft tokens and without, while the interval is too wide
        for a single number and the measuring takes little time.
        """
        widths = [step.rows for step in self._steps if step.rows > 1]
        if not widths or self._probes == MAX_PROBES:
            return None
        estimate = self.estimate()
        if estimate is not None:
            seconds = sum(step.seconds for step in self._steps)
            next_seconds = 2 * estimate.seconds / max(sum(step.tokens for step in self._steps), 1)
            has_time = self._probe_seconds + next_seconds <= max(PROBE_TIME_SHARE * seconds, PROBE_SECONDS)
            if estimate.error <= MAX_SHOWN_ERROR or not has_time:
                return None
        return median_low(widths) if self._recent_passes[-1].is_plain else 1

    def step_estimate(self, rows: int, tokens: int, seconds: float) -> PlainEstimate | None:
        """The time of plain decoding for the tokens of such a step, as known so far; None when nothing was compared.

        Its error is that of the comparisons, which all steps share, without the scatter of the step's own pass.
        """
        if rows == 1:
            return PlainEstimate(tokens * seconds, 0.0)
        if (correction := self._measured_correction()) is None:
            return None
        return PlainEstimate(tokens * seconds / (self._relative_cost(rows) * correction.factor), correction.error)

    def estimate(self) -> PlainEstimate | None:
        """The time of plain decoding for the answer so far; None without steps, or when nothing was compared."""
        if self._unread_comparisons:
            self._correction = None
        by_rows = {rows: self.step_estimate(rows, 1, 1.0) for rows in {step.rows for step in self._steps}}
        plain_seconds = [
            (step.rows, step.tokens * step.seconds * unit.seconds)
            for step in self._steps
            if (unit := by_rows[step.rows]) is not None
        ]
        seconds = sum(each for _rows, each in plain_seconds)
        if not seconds or len(plain_seconds) < len(self._steps):
            return None
        drafted_seconds = sum(each for rows, each in plain_seconds if rows > 1)
        correction = self._measured_correction() or _Correction(1.0, 0.0, MIN_SCATTER)
        squares = sum(each**2 for _rows, each in plain_seconds)
        own_error = NORMAL_INTERVAL * correction.scatter * math.sqrt(squares)  # of the passes of the answer
        return PlainEstimate(seconds, math.hypot(correction.error * drafted_seconds, own_error) / seconds)

    def _add_pass(self, rows: int, seconds: float) -> None:
        self._pass_count += 1
        new = _Pass(self._pass_count, rows, max(seconds, 1e-9))
        for other in self._recent_passes:
            if other.is_plain != new.is_plain:
                self._comparisons.append(_Comparison.of(other, new) if new.is_plain else _Comparison.of(new, other))
                self._unread_comparisons += 1
        self._recent_passes.append(new)

    def _measured_correction(self) -> _Correction | None:
        if self._correction is None and self._comparisons:
            self._correction = _measure_correction(self._comparisons, self._relative_cost)
            self._unread_comparisons = 0
        return self._correction


def _measure_correction(comparisons: Sequence[_Comparison], relative_cost: Callable[[int], float]) -> _Correction:
    """The median over all comparisons. A few of them are trusted no more than their scatter allows."""
    expected = {rows: math.log(relative_cost(rows)) for rows in {each.drafted.rows for each in comparisons}}
    logs = [each.log_ratio - expected[each.drafted.rows] for each in comparisons]
    middle = median(logs)
    drafted_count = len({each.drafted.number for each in comparisons})
    plain_count = len({each.plain.number for each in comparisons})
    if min(drafted_count, plain_count) >= MIN_ROBUST_PASSES:
        scatter = MAD_TO_DEVIATION * median(abs(each - middle) for each in logs)
    else:
        scatter = pstdev(logs) if len(logs) > 1 else SINGLE_SCATTER
    scatter = max(scatter / math.sqrt(2), MIN_SCATTER)  # of a pass: both passes of a comparison scatter
    freedom = drafted_count + plain_count - 2
    t_value = T_VALUES[freedom] if freedom < len(T_VALUES) else LARGE_SAMPLE_T_VALUE
    error = t_value * MEDIAN_ERROR * scatter * math.sqrt(1 / drafted_count + 1 / plain_count)
    return _Correction(math.exp(middle), math.expm1(error), scatter)
