"""A launch grows a draft tree by the children that operations of torch would choose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.drafters.eagle.dynamic_tree import TreeConfig, grow_tree, pack_levels, unpack_children
from specchat.drafters.eagle.graph import grow_by_kernels, tree_kernels
from specchat.drafters.eagle.head import HeadOutput
from specchat.engine.sampling import Ranking
from specchat.forward.batch import ancestor_masks
from specchat.forward.cuda import triton_tree
from tests.triton_interpreter import DEVICE, interpreted_kernels

COUNT = 16  # best tokens of a node


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


class RandomHead:
    """Scores that follow from the seed and from the nodes that were read."""

    def __init__(self, seed: int, step: float) -> None:
        self.seed, self.step, self.seen = seed, step, list[list[int]]()

    def scores(self, states: Tensor) -> Tensor:
        mixed = (states.long() * 7919 + torch.arange(COUNT, device=states.device) * 104729 + self.seed) % 997
        return (mixed.float() * self.step).sort(dim=-1, descending=True).values

    @property
    def root(self) -> HeadOutput:
        states = torch.ones(1, 1, device=DEVICE)
        return HeadOutput(self.scores(states), states)

    def rank(self, logits: Tensor, _depth: int, _paths: Tensor) -> Ranking:
        return Ranking(torch.arange(COUNT, device=logits.device).repeat(len(logits), 1), logits)

    def read(self, depth: int, states: Tensor, tokens: Tensor, seen: Tensor) -> HeadOutput:
        bits = seen if seen.dtype == torch.long else ancestor_masks(seen)
        self.seen.append(bits.tolist())
        states = (states * 31 + tokens[:, None] + depth) % 9973
        return HeadOutput(self.scores(states), states)


def children(packed: Tensor, config: TreeConfig) -> tuple[list[tuple[int, int | None]], list[float]]:
    drafted = unpack_children(config, packed.tolist())
    return [(each.token, each.parent) for each in drafted], [each.log_probability for each in drafted]


CONFIGS = {
    "default": TreeConfig(),
    "deep": TreeConfig(depth=7, width=3, max_draft_tokens=12, min_level_probability=0.0),
    "chain": TreeConfig(depth=4, width=1, max_draft_tokens=4),
    "wide": TreeConfig(depth=3, width=8, max_draft_tokens=30, min_level_probability=0.1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_tree_is_that_of_torch(name):
    config, sizes = CONFIGS[name], set[int]()
    for seed, step in ((1, 0.01), (2, 0.002), (3, 0.1), (4, 0.0)):  # the last one: all are equally probable
        for limit in (config.max_draft_tokens, 2, 1):
            budget = torch.tensor(limit).to(DEVICE)
            ours, theirs = RandomHead(seed, step), RandomHead(seed, step)
            packed = grow_by_kernels(triton_tree, config, budget, ours.root, ours.rank, ours.read)
            expected = pack_levels(grow_tree(config, budget, theirs.root, theirs.rank, theirs.read, waits=False))

            tree, likely = children(packed, config)

            assert (tree, likely) == (children(expected, config)[0], pytest.approx(children(expected, config)[1]))
            sizes.add(len(tree))
    assert len(sizes) > 1


def test_nodes_see_their_paths():
    config, ours, theirs = CONFIGS["deep"], RandomHead(3, 0.02), RandomHead(3, 0.02)
    budget = torch.tensor(12).to(DEVICE)

    grow_by_kernels(triton_tree, config, budget, ours.root, ours.rank, ours.read)
    levels = grow_tree(config, budget, theirs.root, theirs.rank, theirs.read, waits=False)

    alive = [sum(each > float("-inf") for each in level.log_probabilities[:, 0].tolist()) for level in levels[1:]]
    assert sum(count > 0 for count in alive) >= 2
    for count, one, other in zip(alive, ours.seen, theirs.seen, strict=True):
        assert one[:count] == other[:count]


def test_a_kernel_that_grows_other_trees_is_not_used(monkeypatch: Any, caplog: pytest.LogCaptureFixture):
    tree_kernels.cache_clear()
    monkeypatch.setattr("specchat.drafters.eagle.graph.triton_module", lambda *_: triton_tree)
    assert tree_kernels(TreeConfig(), DEVICE) is triton_tree
    tree_kernels.cache_clear()
    right = triton_tree.GrowingTree.add_level

    def wrong(self: Any, scores: Tensor, tokens: Tensor) -> Any:
        return right(self, scores, tokens + 1)

    monkeypatch.setattr(triton_tree.GrowingTree, "add_level", wrong)
    assert tree_kernels(TreeConfig(), DEVICE) is None
    assert "draft trees give other results" in caplog.text
    tree_kernels.cache_clear()
