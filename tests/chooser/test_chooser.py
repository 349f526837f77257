"""The choice of the drafter and of the number of draft tokens."""

from __future__ import annotations

from time import perf_counter

import pytest

from specchat.chooser.acceptance import CountsKey, RankCounts
from specchat.chooser.chooser import CandidateStats, Chooser, ChooserState, DeviceLoad
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve, PassCurve
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from tests.each_row import each_row
from tools.replay_chooser import CostTable, RecordedTree, Replayer, SimulatedClock, Trace

FREE = Costs({1024: Curve({1: 1.0, 64: 1.0})})


class Counting(Drafter):
    """Drafts the next numbers."""

    is_instant = True

    def propose(self, context: DraftContext) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        tree.add_chain([context.tokens[-1] + 1 + step for step in range(context.max_draft_tokens)], source="counting")
        return tree


def context(budget: int = 8) -> DraftContext:
    return DraftContext([1, 2, 3], Sampler(), budget)


def test_draft_tokens_that_were_not_reached_are_not_counted():
    record = CandidateStats(0.5)
    player = Replayer(CostTable("free", {1: 1.0, 16: 1.0}, {"suffix": (0.0, 0.0)}))
    trace = Trace("chat", 0.0, {"suffix": (RecordedTree((0, 1, 2), (1,)),) + (RecordedTree(),) * 9})
    player.chooser.state.candidates[CountsKey("suffix", "", False), True] = record

    list(player.replay(trace))

    assert [round(record.trials[0][depth]) for depth in range(3)] == [1, 1, 0]
    assert [round(record.accepted[0][depth]) for depth in range(3)] == [1, 0, 0]


def test_no_drafter_is_used_while_a_completion_waits():
    chooser = Chooser({"counting": Counting()}, FREE)

    chooser.device_load = DeviceLoad(waiting_sessions=1, is_completion_waiting=True)

    assert len(chooser.propose(context())) == 1


def test_waiting_sessions_share_the_budget():
    chooser = Chooser({"counting": Counting()}, FREE)
    alone = len(chooser.propose(context()))

    chooser.device_load = DeviceLoad(waiting_sessions=3)

    assert (alone, len(chooser.propose(context()))) == (9, 3)


def test_without_costs_no_drafter_is_used():
    assert len(Chooser({"counting": Counting()}, Costs()).propose(context())) == 1


def test_a_stored_curve_is_confirmed_by_a_plain_pass_and_a_few_draft_tokens_first():
    chooser, widths = (
        Chooser({"counting": Counting()}, Costs({1024: PassCurve({1: 1.0, 64: 1.0}, is_unconfirmed=True)})),
        list[int](),
    )
    for length in range(3, 7):
        tree = chooser.propose(context())
        chooser.observe(Outcome(tree, [0], [0] * len(tree), length - 1, verify_seconds=1.0))
        widths.append(len(tree))

    assert widths == [1, 4, 9, 9]


def test_all_drafters_observe_and_forget():
    observed: list[object] = []

    class Listening(Drafter):
        def observe(self, outcome: Outcome) -> None:
            observed.append(outcome)

        def forget(self, length: int) -> None:
            observed.append(length)

    chooser, outcome = Chooser({"plain": Drafter(), "b": Listening()}, FREE), Outcome(DraftTree(1), [0], [2], 0)
    chooser.observe(outcome)
    chooser.forget(7)

    assert observed == [outcome, 7]


def test_the_next_answer_of_a_kind_starts_with_the_statistics_of_the_last():
    first = Chooser({"counting": Counting()}, FREE)
    first.start_answer(AnswerTask("edit", ("counting", "plain")))
    for step in range(30):
        tree = first.propose(context())
        first.observe(Outcome(tree, [0], [-1] * len(tree), 2 + step, verify_seconds=1.0))
    second = Chooser({"counting": Counting()}, Costs({1024: Curve({1: 1.0, 16: 3.0})}), first.state)
    second.start_answer(AnswerTask("edit", ("counting", "plain")))

    assert len(second.propose(context())) == 1
    second.start_answer(AnswerTask("chat", ("counting", "plain")))
    assert len(second.propose(context())) > 1


def test_nothing_is_learned_from_a_loop():
    chooser = Chooser({"counting": Counting()}, FREE)
    chooser.start_answer(AnswerTask("edit", ("counting", "plain")))
    drafted = len(chooser.propose(context()))
    for step in range(30):
        tree = chooser.propose(context())
        chooser.observe(Outcome(tree, [0], [-1] * len(tree), 2 + step, verify_seconds=1.0, is_repeated=True))

    assert len(chooser.propose(context())) == drafted > 1


class Wrong(Drafter):
    """Drafts tokens that are always rejected, in a hundredth of a pass, and counts its calls."""

    is_instant = True

    def __init__(self, clock: SimulatedClock, seconds: float = 0.01) -> None:
        self.clock, self.seconds, self.asked = clock, seconds, 0

    def propose(self, context: DraftContext) -> DraftTree:
        self.asked += 1
        self.clock.now += self.seconds
        tree = DraftTree(context.tokens[-1])
        tree.add(-1, 0, "wrong")
        return tree


def written(chooser: Chooser, steps: int, start: int = 3) -> None:
    """A text without any drafted token; a pass takes a second."""
    for length in range(start, start + steps):
        tree = chooser.propose(DraftContext([1] * length, Sampler(), 4))
        chooser.observe(Outcome(tree, [0], [2] * len(tree), length - 1, verify_seconds=1.0))


def count_decisions(costs: Costs, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of the text at each decision from now on: only a decision reads the costs of passes."""
    decided, trusted = list[int](), costs.trusted_pass_seconds
    monkeypatch.setattr(
        costs, "trusted_pass_seconds", lambda length, rows: decided.append(length) or trusted(length, rows)
    )
    return decided


def test_while_no_drafter_pays_most_steps_are_idle(monkeypatch):
    clock = SimulatedClock()
    wrong, dear = Wrong(clock), Costs({1024: Curve({1: 1.0, 16: 9.0})})
    chooser = Chooser({"wrong": wrong}, dear, clock=clock)
    written(chooser, 60)
    decided = count_decisions(dear, monkeypatch)
    asked = wrong.asked

    written(chooser, 64, start=63)

    assert 64 // 8 <= len(decided) <= 64 // 4
    assert 0 < wrong.asked - asked <= len(decided)


def test_decisions_take_a_hundredth_of_the_time_while_no_drafter_pays(monkeypatch):
    """Each of them takes a fifth of a pass here."""
    clock, decided = SimulatedClock(), list[int]()
    costs = Costs({1024: Curve({1: 1.0, 16: 9.0})})
    chooser = Chooser({"wrong": Wrong(clock), "other": Wrong(clock)}, costs, clock=clock)
    trusted = costs.trusted_pass_seconds

    def slow(length, rows):
        decided.append(length)
        clock.now += 0.2
        return trusted(length, rows)

    monkeypatch.setattr(costs, "trusted_pass_seconds", slow)
    written(chooser, 60)
    decided.clear()

    written(chooser, 100, start=63)

    assert 1 <= len(decided) <= 0.015 * 100 / 0.2


def test_decisions_are_as_rare_while_the_speed_falls_after_good_drafts(monkeypatch):
    clock = SimulatedClock()
    costs = Costs({1024: Curve({1: 1.0, 16: 9.0})})
    chooser = Chooser({"wrong": Wrong(clock, 0.2)}, costs, clock=clock)
    written(chooser, 60)
    decided = count_decisions(costs, monkeypatch)
    chooser.state.tokens_per_second["", False] = 3.0

    written(chooser, 20, start=63)

    assert chooser.state.tokens_per_second["", False] > 1.1
    assert len(decided) <= 3


@each_row("seconds, learned", [(0.002, 11), (1.0, 50)])
def test_of_fast_plain_passes_some_are_learned(monkeypatch, seconds, learned):
    costs, lengths = Costs({1024: Curve({1: seconds, 16: seconds})}), list[int]()
    chooser = Chooser({}, costs)
    monkeypatch.setattr(costs, "learn_pass", lambda length, _rows, _seconds: lengths.append(length) or False)

    for length in range(3, 53):
        tree = chooser.propose(DraftContext([1] * length, Sampler(), 0))
        chooser.observe(Outcome(tree, [0], [2], length - 1, verify_seconds=seconds))

    assert len(lengths) == pytest.approx(learned, abs=1)


def test_a_stored_cost_is_confirmed_by_plain_passes_however_fast_they_are():
    costs = Costs({1024: PassCurve({1: 1e-4, 16: 1e-4}, is_unconfirmed=True)})
    chooser = Chooser({"counting": Counting()}, costs)
    widths = list[int]()
    for length in range(3, 7):
        tree = chooser.propose(context())
        chooser.observe(Outcome(tree, [0], [0] * len(tree), length - 1, verify_seconds=4e-4))
        widths.append(len(tree))

    assert widths[:2] == [1, 1]  # another cost than expected, twice
    assert widths[2] > 1


def test_a_slow_drafter_that_declares_itself_instant_proposes_rarely():
    asked = list[int]()
    for seconds in (0.01, 0.1, 1.0):
        clock = SimulatedClock()
        wrong = Wrong(clock, seconds)
        written(Chooser({"wrong": wrong}, Costs({1024: Curve({1: 1.0, 16: 1.5})}), clock=clock), 500)
        asked.append(wrong.asked)

    assert asked[0] > asked[1] > asked[2]
    assert asked[2] <= 10


def test_the_next_answer_ends_the_idle_time():
    clock, dear = SimulatedClock(), Costs({1024: Curve({1: 1.0, 16: 9.0})})
    chooser = Chooser({"wrong": Wrong(clock), "counting": Counting()}, dear, clock=clock)
    chooser.start_answer(AnswerTask("chat", ("wrong",)))
    written(chooser, 60)

    chooser.costs.pass_curves[1024] = Curve({1: 1.0, 16: 1.0})
    chooser.start_answer(AnswerTask("edit", ("counting",)))

    assert len(chooser.propose(context())) > 1


class Reading(Drafter):
    """Computes, and needs a prefill of the whole text before it drafts; always wrong."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock, self.known, self.read = clock, 0, 0

    def propose(self, context: DraftContext) -> DraftTree:
        self.clock.now += 0.4 + 0.1 * (len(context.tokens) - self.known)
        self.read += len(context.tokens) - self.known
        self.known = len(context.tokens)
        tree = DraftTree(context.tokens[-1])
        tree.add(-1, 0, "reading")
        return tree

    def forget(self, length: int) -> None:
        self.known = min(self.known, length)


def test_a_drafter_with_a_long_prefill_is_tried_when_that_is_affordable():
    """Forty short answers over long prompts: a try in a new one takes as long as 40 passes, two of an answer."""
    clock = SimulatedClock()
    reading = Reading(clock)
    chooser = Chooser({"reading": reading}, Costs({1024: Curve({1: 1.0, 16: 1.5})}), clock=clock)
    for _answer in range(40):
        chooser.start_answer(AnswerTask("chat", ("reading", "plain")))
        chooser.forget(0)
        written(chooser, 20, start=400)

    assert reading.read < 3 * 400


def test_the_estimates_are_a_sentence():
    chooser = Chooser({"counting": Counting()}, FREE)
    chooser.propose(context())

    assert chooser.describe_estimates().startswith("counting 3.2 tokens in ")
    assert chooser.describe_estimates().endswith("no drafter 1 token in 1000.0 ms")


def test_an_estimate_says_whether_it_is_a_prior_or_comes_from_earlier_conversations():
    class Computing(Counting):
        is_instant = False

    key, counts = CountsKey("counting", "", False), RankCounts([4.0], [3.0], [1.0])
    chooser = Chooser({"counting": Computing()}, FREE, ChooserState({key: counts}))
    chooser.propose(context())

    assert " (not measured yet), no drafter" in chooser.describe_estimates()
    for _ in range(2):
        tree = DraftTree(1)
        tree.add(2, 0, "counting")
        chooser.state.candidate(key, 0.5, is_private=True).add_compared_tree(tree, 1)
    assert " (also from earlier conversations), no drafter" in chooser.describe_estimates()


def test_an_answer_without_choices_has_no_estimates():
    assert not Chooser({}, Costs()).describe_estimates()


def test_a_decision_is_plain_arithmetic(monkeypatch):
    """The docs have its time; this test only checks that it creates no tensor."""
    chooser = Chooser({"counting": Counting()}, FREE, clock=perf_counter)
    monkeypatch.setattr("torch.tensor", None)

    assert len(chooser.propose(context())) == 9


def test_what_a_pass_takes_longer_it_takes_from_all_texts_that_share_it():
    """A draft that pays beside no other text does not pay in a pass that seven others wait for."""
    chooser, costs = Chooser({"counting": Counting()}, Costs({1024: Curve({1: 1.0, 64: 13.6})})), list[int]()
    for others in (0, 7, 7, 0, 0):
        tree = chooser.propose(context())
        costs.append(len(tree))
        chooser.observe(
            Outcome(tree, [0], [4] * len(tree), 2, verify_seconds=1.0, other_rows=others, other_texts=others)
        )

    assert costs[0] > 1
    assert costs[2:4] == [1, 1]
    assert costs[4] > 1


@each_row("rows", [1, 5])
def test_a_pass_with_rows_of_other_texts_teaches_what_so_many_rows_cost(rows):
    costs, tree = Costs({1024: Curve({1: 1.0, 16: 2.5})}), DraftTree(3)
    tree.add_chain([4] * (rows - 1))
    chooser, learned = Chooser({}, costs), list[tuple[int, float]]()
    costs.learn_pass = lambda _length, row_count, seconds: learned.append((row_count, seconds))

    chooser.observe(Outcome(tree, [0], [4] * rows, 2, verify_seconds=1.4, other_rows=4, other_texts=4))

    assert learned == [(rows + 4, 1.4)]
    assert costs.own_share(3, rows, 4) == costs.relative_pass_cost(3, rows) / costs.relative_pass_cost(3, rows + 4)
