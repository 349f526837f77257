"""The draft tree."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from specchat.engine.tree import ROOT, DraftTree


def test_an_equal_child_is_reused():
    tree = DraftTree(1)

    first, again = tree.add(5), tree.add(5)

    assert first == again == 1
    assert len(tree) == 2


def test_chains_share_their_prefix():
    tree = DraftTree(1)
    tree.add_chain([5, 6, 7])

    tree.add_chain([5, 6, 8])

    assert tree.tokens == [1, 5, 6, 7, 8]
    assert tree.parents == [-1, 0, 1, 2, 2]
    assert not tree.is_chain


def test_path_to_a_node_leaves_the_root_out():
    tree = DraftTree(1)
    leaf = tree.add_chain([5, 6])

    assert tree.path_tokens(leaf) == [5, 6]
    assert tree.path_tokens(ROOT) == []


def test_the_first_chain_follows_first_children():
    tree = DraftTree(1)
    tree.add_chain([5, 6, 7], source="a")
    tree.add_chain([9, 9], source="b")

    chain = tree.first_chain(max_draft_tokens=2)

    assert chain.tokens == [1, 5, 6]
    assert chain.sources == ["text", "a", "a"]
    assert chain.is_chain


def test_a_short_chain_is_its_own_first_chain():
    tree = DraftTree(1)
    tree.add_chain([5, 6])

    assert tree.first_chain(max_draft_tokens=2) is tree


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5)), max_size=90))
def test_a_node_attends_to_itself_and_its_ancestors(nodes):
    tree = DraftTree(0)
    for place, token in nodes:
        tree.add(token, place % len(tree))

    expected = torch.eye(len(tree), dtype=torch.bool)
    for node, parent in enumerate(tree.parents[1:], start=1):
        expected[node] |= expected[parent]

    assert torch.equal(tree.attention_mask(), expected)
    assert tree.depths == [len(tree.path_tokens(node)) for node in range(len(tree))]
    assert tree.is_chain == (tree.parents == list(range(-1, len(tree) - 1)))


def test_a_tree_is_pruned_to_some_nodes():
    tree = DraftTree(7)
    one = tree.add(1, source="a")
    tree.add(2, one, "b")
    tree.add(3, source="c")

    cut = tree.prune([1, 3])

    assert (cut.tokens, cut.parents, cut.sources) == ([7, 1, 3], [-1, 0, 0], ["text", "a", "c"])
    assert tree.prune([1, 2, 3]) is tree
