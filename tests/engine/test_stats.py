"""Sums over steps."""

from specchat.acceptance_counts import Acceptance
from specchat.engine.decode import Step
from specchat.engine.stats import DecodingStats, DrafterSteps, StepCounts
from specchat.engine.tree import DraftTree


def step(drafted: int, accepted: int, seconds: float = 0.5) -> Step:
    tree = DraftTree(1)
    tree.add_chain(list(range(10, 10 + drafted)), source="a")
    return Step(tree, list(range(accepted + 1)), [*list(range(10, 10 + accepted)), 99], 0.25, seconds)


def test_steps_are_summed():
    stats = DecodingStats()
    for drafted, accepted in ((4, 2), (2, 2), (0, 0)):
        stats.add(StepCounts.of_step(step(drafted, accepted)))

    assert (stats.steps, stats.tokens, stats.drafted) == (3, 7, 6)
    assert dict(stats.accepted_by_drafter) == {"a": 4}


def test_steps_are_counted_by_the_drafter_of_their_first_draft_token():
    stats = DecodingStats()
    for drafted, accepted in ((4, 2), (2, 0), (0, 0)):
        stats.add(StepCounts.of_step(step(drafted, accepted)))

    assert stats.by_drafter == {
        "a": DrafterSteps(steps=2, acceptance=Acceptance((2, 1, 1), (1, 1)), tokens=4, seconds=1.5),
        "plain": DrafterSteps(steps=1, tokens=1, seconds=0.75),
    }


def test_tokens_after_a_stop_string_do_not_count():
    stats = DecodingStats()

    stats.add(StepCounts.of_step(step(4, 3), kept_tokens=2))

    assert stats.tokens == 2
    assert stats.accepted_by_drafter["a"] == 2
    assert stats.acceptance == Acceptance((1, 1), (1, 1))


def test_acceptance_asks_only_where_the_parent_was_accepted():
    """A drafter that is always right has 100 %, however wide its trees are and wherever its drafts end."""
    tree = DraftTree(1)
    for token in (10, 20):
        tree.add_chain([token, 11, 12], source="a")
    deep, wide_and_wrong = Step(tree, [0, 1, 2, 3], [10, 11, 12, 99], 0.1, 0.1), Step(tree, [0, 4], [20, 99], 0.1, 0.1)
    right, all_of_them = DecodingStats(), DecodingStats()

    right.add(StepCounts.of_step(deep))
    all_of_them.add(StepCounts.of_step(deep))
    all_of_them.add(StepCounts.of_step(wide_and_wrong))

    assert right.acceptance.rate == 1.0
    assert all_of_them.acceptance == Acceptance((2, 2, 1), (2, 1, 1))
    assert all_of_them.acceptance.rates == (1.0, 0.5, 1.0)
