"""How long plain decoding would have taken, from the passes of an answer; simulated passes, no clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pytest

from specchat.chat.events import MAX_SHOWN_ERROR
from specchat.chat.plain_baseline import MAX_PROBES, PlainBaseline, PlainEstimate
from tests.each_row import each_row

ONE_ROW_SECONDS = 0.02
RELATIVE_COSTS = {1: 1.0, 2: 1.08, 4: 1.15, 8: 1.45, 17: 2.2}  # of the simulated machine, by rows
LOAD_CHANGES = (0.4, 0.5, 0.7, 1.5, 2.0, 2.5)
ANSWERS = 200


def relative_cost(rows: int) -> float:
    for (low, less), (high, more) in pairwise(RELATIVE_COSTS.items()):
        if rows <= high:
            return less + (more - less) * (rows - low) / (high - low)
    return RELATIVE_COSTS[17]


@dataclass(frozen=True)
class Machine:
    """What the passes of the simulated answers are like."""

    plain_share: float  # of the steps
    widths: tuple[int, ...]  # rows of the other steps
    noise: float = 0.04  # standard deviation of the logarithm of a duration
    believed: Callable[[int], float] = relative_cost  # what the chooser believes about the cost of rows


@dataclass
class Answer:
    """A simulated answer: what the baseline estimated, and what plain decoding takes in truth."""

    estimate: PlainEstimate | None
    true_plain_seconds: float
    decode_seconds: float
    probes: int

    @property
    def ratio(self) -> float:
        """The shown factor divided by the true one."""
        assert self.estimate is not None
        return self.estimate.seconds / self.true_plain_seconds


def simulated_answers(machine: Machine, seed: int, count: int) -> Iterator[Answer]:
    """Answers of one conversation; in each, the passes become slower or faster by a factor, somewhere."""
    generator = random.Random(seed)
    baseline, load = PlainBaseline(machine.believed), 1.0

    def seconds(rows: int) -> float:
        return ONE_ROW_SECONDS * relative_cost(rows) * load * math.exp(generator.gauss(0, machine.noise))

    for _ in range(count):
        steps, change = generator.choice((12, 30, 60, 150)), generator.choice(LOAD_CHANGES)
        changes_at, acceptance_rate = generator.randrange(steps), generator.choice((0.3, 0.5, 0.8, 0.95))
        change = 1 / change if load * change > 3 or load * change < 0.3 else change
        true_seconds = total = 0.0
        baseline.start_answer()
        is_plain = generator.random() < machine.plain_share
        for step in range(steps):
            load *= change if step == changes_at else 1.0
            is_plain = generator.random() < machine.plain_share if generator.random() < 0.3 else is_plain
            rows = 1 if is_plain else generator.choice(machine.widths)
            tokens = 1
            while tokens < rows and generator.random() < acceptance_rate:
                tokens += 1
            duration = seconds(rows)
            baseline.add_step(rows, tokens, duration)
            true_seconds += tokens * ONE_ROW_SECONDS * load
            total += duration
        probes = 0
        while (rows := baseline.rows_to_probe()) is not None:
            baseline.add_probe(rows, seconds(rows))
            probes += 1
        yield Answer(baseline.estimate(), true_seconds, total, probes)


@cache
def answers(machine: Machine, per_conversation: int) -> list[Answer]:
    conversations = range(ANSWERS // per_conversation)
    return [each for seed in conversations for each in simulated_answers(machine, seed, per_conversation)]


FLAT = Machine(0.0, (5,), believed=lambda _rows: 1.0)  # nothing is known about the cost of rows
MACHINES = {
    "half of the steps are plain": Machine(0.5, (2, 3, 5, 9, 17)),
    "few steps are plain": Machine(0.1, (3, 5, 9)),
    "every step is drafted": Machine(0.0, (5, 9), believed=lambda rows: relative_cost(rows) ** 1.3),
    "nothing is known about rows": FLAT,
    "passes scatter by 10 %": Machine(0.3, (3, 5, 9), noise=0.1),
}


@pytest.mark.full
@each_row("per_conversation", [1, 8])
@each_row("machine", MACHINES.values())
def test_a_shown_factor_is_within_fifteen_percent_of_the_truth_when_the_load_changes(machine, per_conversation):
    found = [each for each in answers(machine, per_conversation) if each.estimate is not None]
    single = [each for each in found if each.estimate.error <= MAX_SHOWN_ERROR]

    assert sum(1 / 1.15 <= each.ratio <= 1.15 for each in single) >= 0.95 * len(single)
    assert len(single) >= (0.85 if per_conversation > 1 else 0.4) * ANSWERS


@pytest.mark.full
@each_row("per_conversation", [1, 8])
@each_row("machine", MACHINES.values())
def test_the_truth_lies_in_the_interval(machine, per_conversation):
    found = [each for each in answers(machine, per_conversation) if each.estimate is not None]

    inside = [abs(math.log(each.ratio)) <= math.log1p(each.estimate.error) for each in found]
    assert sum(inside) >= 0.92 * len(found)


def test_plain_decoding_reads_one():
    machine = Machine(1.0, (5,), noise=0.1)

    for answer in answers(machine, 1):
        assert answer.probes == 0
        assert answer.estimate is not None
        assert 0.9 <= answer.estimate.seconds / answer.decode_seconds <= 1.1


def test_without_a_pass_over_one_row_nothing_is_claimed():
    baseline = PlainBaseline(relative_cost)
    baseline.add_step(5, 3, 0.03)

    assert baseline.estimate() is None
    assert baseline.step_estimate(5, 3, 0.03) is None


def test_a_drafted_step_is_as_uncertain_as_its_comparisons_and_a_plain_one_is_certain():
    baseline, errors = PlainBaseline(relative_cost), list[float]()
    for _ in range(3):
        baseline.add_step(1, 1, 0.02)
        baseline.add_step(5, 3, 0.03)
        errors.append(baseline.step_estimate(5, 3, 0.03).error)

    assert baseline.step_estimate(1, 1, 0.02) == PlainEstimate(0.02, 0.0)
    assert errors[0] > errors[1] > errors[2] > 0


def test_a_conversation_needs_fewer_probes_from_answer_to_answer():
    first, *_others, last = zip(*(simulated_answers(FLAT, seed, 8) for seed in range(20)), strict=True)

    assert all(answer.probes for answer in first)
    assert sum(answer.probes for answer in last) < len(last) / 4


def test_an_answer_measures_few_passes_however_short_they_are():
    baseline = PlainBaseline(lambda _rows: 1.0)
    baseline.start_answer()
    baseline.add_step(5, 2, 1e-5)
    probes = 0
    while (rows := baseline.rows_to_probe()) is not None:
        baseline.add_probe(rows, 1e-5 * (1 + probes % 3))  # so much scatter that the interval stays wide
        probes += 1
    assert probes == MAX_PROBES


def test_passes_of_different_answers_are_not_compared():
    """The load may have changed in the minutes between them."""
    baseline = PlainBaseline(relative_cost)
    baseline.add_step(1, 1, 0.02)
    baseline.start_answer()
    baseline.add_step(5, 3, 0.2)

    assert baseline.estimate() is None


def test_the_estimate_of_a_long_answer_prices_each_number_of_rows_once():
    priced = list[int]()

    def counted_cost(rows: int) -> float:
        priced.append(rows)
        return relative_cost(rows)

    baseline = PlainBaseline(counted_cost)
    for rows in (1, 4, 8) * 100:
        baseline.add_step(rows, 1, ONE_ROW_SECONDS * relative_cost(rows))
    baseline.estimate()
    priced.clear()

    estimate = baseline.estimate()

    assert estimate is not None and math.isclose(estimate.seconds, 300 * ONE_ROW_SECONDS)
    assert sorted(priced) == [4, 8]
