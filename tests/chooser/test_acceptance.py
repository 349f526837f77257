"""The expected tokens of a tree, from the acceptance of earlier trees."""

from __future__ import annotations

from math import isinf

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


def compared(record: AcceptanceStats, tree: DraftTree, tokens: tuple[int, ...]) -> None:
    record.add_proposal(tree, requested_tokens=len(tree) - 1)
    draft = TrackedDraft(record, tree, length_class=0)
    assert not all(draft.compare_token(token) for token in tokens)


def test_the_ranks_of_a_tree_are_counted_when_its_comparison_ends():
    record, tree = AcceptanceStats(0.5), chain(5, 6)
    tree.add(7, 1, "a")  # a sibling of 6

    compared(record, tree, (5, 7, 9))

    assert record.ranks.trials == [1, 1, 1]
    assert record.ranks.accepted == [1, 0, 1]


def test_the_expected_nodes_follow_the_statistics():
    record = AcceptanceStats(0.5)
    before = next(record.expected_nodes(8))[0]

    compared(record, chain(1, 2, 3), (9,))

    assert next(record.expected_nodes(8))[0] < before


def test_the_next_node_may_be_as_deep_as_the_last_one():
    record, fork = AcceptanceStats(0.5), chain(1, 2)
    fork.add(3, 0, "a")

    compared(record, fork, (9,))

    assert [depth for _probability, depth, _later in record.expected_nodes(3)] == [1, 2, 2]


def test_a_tree_that_used_its_budget_is_expected_to_grow():
    record = AcceptanceStats(0.5)
    compared(record, chain(1, 2), (9,))
    longer = len(list(record.expected_nodes(8)))

    record.add_proposal(chain(1, 2), requested_tokens=8)

    assert (longer, len(list(record.expected_nodes(8)))) == (6, 2)


def test_the_later_ranks_of_a_draft_bring_no_more_than_is_said():
    record = AcceptanceStats(0.9)
    for _ in range(4):
        compared(record, chain(1, 2, 3), (1, 2, 3, 4))

    nodes = list(record.expected_nodes(8))

    for number, (_probability, _depth, later) in enumerate(nodes, start=1):
        assert sum(probability for probability, _, _ in nodes[number:]) <= later
    assert [isinf(later) for _, _, later in nodes] == [True] * 3 + [False] * 5
