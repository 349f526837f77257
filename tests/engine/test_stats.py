"""What counts of a step."""

from specchat.acceptance_counts import Acceptance
from specchat.engine.decode import Step
from specchat.engine.stats import NO_DRAFTER, StepCounts
from specchat.engine.tree import DraftTree


def step(drafted: int, accepted: int) -> Step:
    tree = DraftTree(1)
    tree.add_chain(list(range(10, 10 + drafted)), source="a")
    return Step(tree, list(range(accepted + 1)), [*list(range(10, 10 + accepted)), 99], 0.25, 0.5)


def test_a_step_counts_for_the_drafter_of_its_first_draft_token():
    drafted, plain = StepCounts.of_step(step(4, 2)), StepCounts.of_step(step(0, 0))

    assert (drafted.tokens, drafted.drafted, drafted.accepted_sources, drafted.drafter) == (3, 4, ("a", "a"), "a")
    assert drafted.acceptance == Acceptance((1, 1, 1), (1, 1))
    assert (plain.tokens, plain.drafted, plain.drafter, plain.seconds) == (1, 0, NO_DRAFTER, 0.75)


def test_tokens_after_a_stop_string_do_not_count():
    counts = StepCounts.of_step(step(4, 3), kept_tokens=2)

    assert (counts.tokens, counts.accepted_sources) == (2, ("a", "a"))
    assert counts.acceptance == Acceptance((1, 1), (1, 1))


def test_acceptance_asks_only_where_the_parent_was_accepted():
    """A drafter that is always right has 100 %, however wide its trees are and wherever its drafts end."""
    tree = DraftTree(1)
    for token in (10, 20):
        tree.add_chain([token, 11, 12], source="a")
    deep = StepCounts.of_step(Step(tree, [0, 1, 2, 3], [10, 11, 12, 99], 0.1, 0.1)).acceptance
    wide_and_wrong = StepCounts.of_step(Step(tree, [0, 4], [20, 99], 0.1, 0.1)).acceptance

    assert deep.rate == 1.0
    assert deep + wide_and_wrong == Acceptance((2, 2, 1), (2, 1, 1))
    assert (deep + wide_and_wrong).rates == (1.0, 0.5, 1.0)
