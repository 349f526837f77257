"""Sums over steps."""

import pytest

from specchat.engine.decode import Step
from specchat.engine.stats import DecodingStats, DrafterSteps
from specchat.engine.tree import DraftTree


def step(drafted: int, accepted: int, seconds: float = 0.5) -> Step:
    tree = DraftTree(1)
    tree.add_chain(list(range(10, 10 + drafted)), source="a")
    return Step(tree, list(range(accepted + 1)), [*list(range(10, 10 + accepted)), 99], 0.25, seconds)


def test_steps_are_summed():
    stats = DecodingStats()
    for drafted, accepted in ((4, 2), (2, 2), (0, 0)):
        stats.add(step(drafted, accepted))

    assert (stats.steps, stats.tokens, stats.drafted) == (3, 7, 6)
    assert dict(stats.accepted_by_drafter) == {"a": 4}
    assert stats.tokens_per_step == pytest.approx(7 / 3)


def test_steps_are_counted_by_the_drafter_of_their_first_draft_token():
    stats = DecodingStats()
    for drafted, accepted in ((4, 2), (2, 0), (0, 0)):
        stats.add(step(drafted, accepted))

    assert stats.by_drafter == {
        "a": DrafterSteps(steps=2, draft_tokens=6, accepted_tokens=2, tokens=4, seconds=1.5),
        "plain": DrafterSteps(steps=1, tokens=1, seconds=0.75),
    }


def test_tokens_after_a_stop_string_do_not_count():
    stats = DecodingStats()

    stats.add(step(4, 3), kept_tokens=2)

    assert stats.tokens == 2
    assert stats.accepted_by_drafter["a"] == 2
