"""The expected tokens of a tree, from the acceptance of earlier trees."""

from __future__ import annotations

from specchat.chooser.acceptance import AcceptanceStats, TrackedDraft, best_subtree, length_class_of
from specchat.engine.tree import DraftTree


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree(0)
    tree.add_chain(list(tokens), source="a")
    return tree


def test_rows_that_cost_more_than_their_expected_tokens_are_pruned():
    record = AcceptanceStats(0.5)
    steep = [0.0, 1.0, 1.3, 1.6, 1.9, 2.2]

    offer, part = best_subtree("a", record, chain(1, 2, 3, 4), steep, tokens_per_second=1.0)

    assert (offer.draft_tokens, len(part)) == (1, 2)


def test_the_most_probable_branches_of_a_tree_are_kept():
    record, tree = AcceptanceStats(0.9), chain(1, 2, 3)
    tree.add(9, 0, "a")

    _offer, part = best_subtree("a", record, tree, [0.0, 1.0, 1.2, 1.4, 1.6, 1.8], tokens_per_second=1.0)

    assert part.tokens == [0, 1, 2, 3]


def test_long_and_short_chains_are_counted_separately():
    assert [length_class_of(chain(*range(1, length + 1))) for length in (2, 4, 6, 10, 16)] == [0, 0, 1, 2, 3]


def test_an_unverified_draft_token_is_compared_with_the_committed_text():
    record = AcceptanceStats(0.5)
    watched = TrackedDraft(record, chain(5, 6, 7), length_class=0)

    goes_on = [watched.compare_token(token) for token in (5, 9)]

    assert goes_on == [True, False]
    assert [round(tried) for tried in record.trials[0][:3]] == [1, 1, 0]
    assert [round(held) for held in record.accepted[0][:3]] == [1, 0, 0]


def test_the_expected_tree_follows_the_statistics():
    record = AcceptanceStats(0.5)
    record.add_tree(chain(1, 2, 3), requested_tokens=8)
    before = record.expected_tree(8).probabilities

    record.add_trial(0, 0, is_accepted=False)

    assert len(before) == 4
    assert record.expected_tree(8).probabilities[1] < before[1]


def test_a_tree_that_used_its_budget_is_expected_to_grow():
    record = AcceptanceStats(0.5)

    record.add_tree(chain(1, 2), requested_tokens=2)
    longer = record.expected_tree(8)
    record.add_tree(chain(1, 2), requested_tokens=8)

    assert longer.level_sizes[-1][0] > 2
    assert record.expected_tree(8).level_sizes[-1] == (2, 2)
