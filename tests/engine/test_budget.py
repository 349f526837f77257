"""Who is asked, for how much, and the reasons."""

from __future__ import annotations

from time import perf_counter

from specchat.bench.replay import Player, Shape, Table, Trace
from specchat.engine.budget import Chooser, Pressure, Record, best_part, promised
from specchat.engine.costs import Costs, Curve
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.tree import DraftTree
from specchat.engine.verify import Sampler

FREE = Costs({1024: Curve({1: 1.0, 64: 1.0})})


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree(0)
    tree.add_chain(list(tokens), source="a")
    return tree


class Counting(Drafter):
    """Guesses the next numbers."""

    is_instant = True

    def propose(self, context: Context) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        tree.add_chain([context.tokens[-1] + 1 + step for step in range(context.budget)], source="counting")
        return tree


def context(budget: int = 8) -> Context:
    return Context([1, 2, 3], Sampler(), budget)


def test_guesses_that_were_not_reached_are_not_judged():
    record = Record(0.5)
    player = Player(Table("free", {1: 1.0, 16: 1.0}, {"lookup": (0.0, 0.0)}))
    trace = Trace("chat", 0.0, {"lookup": (Shape((0, 1, 2), (1,)),) + (Shape(),) * 9})
    player.chooser.memory.records["lookup", "", False] = record

    list(player.play(trace))

    assert [round(record.tried[0][depth]) for depth in range(3)] == [1, 1, 0]
    assert [round(record.held[0][depth]) for depth in range(3)] == [1, 0, 0]


def test_rows_that_cost_more_than_they_promise_are_left_out():
    record = Record(0.5)
    steep = [0.0, 1.0, 1.3, 1.6, 1.9, 2.2]

    offer, part = best_part("a", record, chain(1, 2, 3, 4), steep, pace=1.0)

    assert (offer.guesses, len(part)) == (1, 2)


def test_the_likeliest_branches_of_a_tree_are_kept():
    record, tree = Record(0.9), chain(1, 2, 3)
    tree.add(9, 0, "a")

    _offer, part = best_part("a", record, tree, [0.0, 1.0, 1.2, 1.4, 1.6, 1.8], pace=1.0)

    assert part.tokens == [0, 1, 2, 3]


def test_a_long_match_is_counted_apart_from_a_short_one():
    assert [promised(chain(*range(1, length + 1))) for length in (2, 4, 6, 10, 16)] == [0, 0, 1, 2, 3]


def test_nobody_drafts_while_a_completion_waits():
    chooser = Chooser({"counting": Counting()}, FREE)

    chooser.pressure = Pressure(waiting=1, is_urgent=True)

    assert len(chooser.propose(context())) == 1


def test_who_waits_gets_a_share_of_the_budget():
    chooser = Chooser({"counting": Counting()}, FREE)
    alone = len(chooser.propose(context()))

    chooser.pressure = Pressure(waiting=3)

    assert (alone, len(chooser.propose(context()))) == (9, 3)


def test_without_costs_nobody_is_asked():
    assert len(Chooser({"counting": Counting()}, Costs()).propose(context())) == 1


def test_everybody_hears_and_forgets():
    heard: list[object] = []

    class Listening(Drafter):
        def observe(self, outcome: Outcome) -> None:
            heard.append(outcome)

        def forget(self, length: int) -> None:
            heard.append(length)

    chooser, outcome = Chooser({"plain": Drafter(), "b": Listening()}, FREE), Outcome(DraftTree(1), [0], [2], 0)
    chooser.observe(outcome)
    chooser.forget(7)

    assert heard == [outcome, 7]


def test_the_next_answer_of_a_kind_begins_with_what_the_last_has_taught():
    first = Chooser({"counting": Counting()}, FREE)
    first.begin("edit", ("counting", "plain"))
    for step in range(30):
        tree = first.propose(context())
        first.observe(Outcome(tree, [0], [-1] * len(tree), 2 + step, verify_seconds=1.0))
    second = Chooser({"counting": Counting()}, Costs({1024: Curve({1: 1.0, 16: 3.0})}), first.memory)
    second.begin("edit", ("counting", "plain"))

    assert len(second.propose(context())) == 1
    second.begin("chat", ("counting", "plain"))
    assert len(second.propose(context())) > 1


def test_the_reason_is_a_sentence():
    chooser = Chooser({"counting": Counting()}, FREE)
    chooser.propose(context())

    assert chooser.why().sentence().startswith("counting guessed in 1 of 1 steps; expected now: counting ")
    assert chooser.why().sentence().endswith("nobody 1 in 1000.0 ms")


def test_an_answer_that_nobody_chose_for_has_no_reason():
    assert not Chooser({}, Costs()).why().sentence()


def test_a_decision_is_plain_arithmetic(monkeypatch):
    """What it takes is told in the docs; here only that no tensor is made."""
    chooser = Chooser({"counting": Counting()}, FREE, clock=perf_counter)
    monkeypatch.setattr("torch.tensor", None)

    assert len(chooser.propose(context())) == 9
