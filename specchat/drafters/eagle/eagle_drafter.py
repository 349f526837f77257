"""EAGLE-1, -2 and -3, and MTP: a small head continues the target's hidden states autoregressively.

EAGLE (arXiv 2401.15077), EAGLE-2 (2406.16858: the dynamic tree), EAGLE-3 (2503.01840: several layers) and the
multi-token prediction of DeepSeek-V3 (2412.19437) differ in the head alone, so they share one drafter. A head reads
pairs (`pair_drafter.py`), and predicts token t + 2 from the pair at t. Beyond the text, it reads its own output.

With rejection sampling the head samples a chain, whose length does not depend on the samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import exp, isfinite, log
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specchat.drafters.eagle.dynamic_tree import DraftedChild, TreeConfig
from specchat.drafters.eagle.graph import GRAPH_PAIRS, SHORTLIST, GraphDrafter, TextEnd
from specchat.drafters.eagle.pair_drafter import PairDrafter
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.hidden_states import CHUNK_TOKENS
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftSample, DraftTree
from specchat.forward.batch import RowBatch
from specchat.forward.native_draft import DraftedNodes, NativeTreeDrafter, PairsEnd, TreeLimits
from specchat.forward.native_sampling import rank_rows

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import HeadOutput
    from specchat.drafters.heads.networks import EagleHead
    from specchat.drafters.registry import DraftingResources

MIN_LOG_PROBABILITY = log(0.02)  # of a node: less probable draft tokens are not worth a row of the target's pass


CHAIN_CONFIG = TreeConfig(depth=4, width=1, max_draft_tokens=4)


@dataclass(frozen=True)
class _DraftNode:
    token: int
    parent: int  # index of a node; ROOT at depth 1
    log_probability: float  # of the whole path
    sample: DraftSample | None = None  # with rejection sampling


class EagleDrafter(PairDrafter["EagleHead"]):
    """Drafts a chain or a dynamic tree with a head."""

    def __init__(self, head: EagleHead, target: Model, tree_config: TreeConfig | None = None) -> None:
        self.tree_config = tree_config or (TreeConfig() if target.supports_trees else CHAIN_CONFIG)
        super().__init__(head, target, self.tree_config.max_draft_tokens)
        self._graph_drafter = graph_drafter(head, target, self.tree_config)
        self._native = _native_drafter(head, self.tree_config)

    def _draft(self, context: DraftContext, max_draft_tokens: int) -> DraftTree:
        if self._graph_drafter.is_possible and not context.sampler.has_penalties:
            return self._draft_on_device(context, max_draft_tokens)
        last_chunk = self._prefill_to_last_chunk(context.tokens)
        builder, fused, native = _TreeBuilder(self, context, max_draft_tokens), self.head.fuse(last_chunk), self._native
        if native is not None and native.can_continue(len(fused), context.sampler):
            embedded = self._embed(self._following_tokens(context.tokens, len(fused)))
            end = PairsEnd(fused, embedded, self.cache, self._first_position, max_draft_tokens)
            builder.add_nodes(native.draft(end, context.sampler))
            self.cache.commit(list(range(len(fused))))
            return builder.to_draft_tree()
        head_output = self._prefill_pairs(context.tokens, fused, logit_rows=1)
        committed_pairs = self.cache.length
        try:
            return builder.build(head_output)
        finally:
            self.cache.rollback(committed_pairs)

    def _draft_on_device(self, context: DraftContext, max_draft_tokens: int) -> DraftTree:
        """The same tree, for which the host waits once instead of once for each level."""
        hidden = self.hidden_states.slice_from(self._first_unread(len(context.tokens) - 1))
        while len(hidden) > GRAPH_PAIRS:
            count = min(CHUNK_TOKENS, len(hidden) - 1)
            self._prefill_pairs(context.tokens, self.head.fuse(hidden[:count]), logit_rows=0)
            hidden = hidden[count:]
        length, slot, count = self.cache.length, self.cache.require_slot(), len(hidden)
        following, text_length = self._following_tokens(context.tokens, count), len(context.tokens)
        end = TextEnd(slot.first_row, length, self._first_position, following, text_length, max_draft_tokens)
        builder = _TreeBuilder(self, context, max_draft_tokens)
        if context.sampler.wants_draft_samples:
            builder.add_samples(self._graph_drafter.draft_samples(end, hidden, context.sampler))
        else:
            builder.add_children(self._graph_drafter.draft_tree(end, hidden, context.sampler))
        self.cache.commit(list(range(count)))
        return builder.to_draft_tree()

    def draft_pass(self, position: int, draft_mask: Tensor, tokens: list[int]) -> RowBatch:
        """A pass of draft tokens at one position. Each attends to all committed pairs and to its row of `draft_mask`.

        draft_mask: bool [len(tokens), draft tokens computed so far, with these]
        """
        length, count = self.cache.length, len(tokens)
        committed_pairs = length + count - draft_mask.shape[1]
        mask = torch.cat((torch.ones(count, committed_pairs, dtype=torch.bool), draft_mask), dim=1)
        if (outdated := position - self.head.context_window + 1 - self._first_position) > 0:
            mask[:, :outdated] = False
        return RowBatch(tokens, torch.full((count,), position), mask, length, self._first_position)


class _TreeBuilder:
    """Builds one tree level by level: each pass of the head computes the best nodes of the last level."""

    def __init__(self, drafter: EagleDrafter, context: DraftContext, max_draft_tokens: int) -> None:
        self.drafter, self.context, self.max_draft_tokens = drafter, context, max_draft_tokens
        self.tree_config = (
            replace(drafter.tree_config, width=1) if context.sampler.wants_draft_samples else drafter.tree_config
        )
        self.nodes = [_DraftNode(context.tokens[-1], -1, 0.0)]

    def build(self, head_output: HeadOutput) -> DraftTree:
        expanded, hidden, mask = [ROOT], head_output.hidden_states, torch.zeros(1, 0, dtype=torch.bool)
        level = self._add_level(head_output.logits, expanded, depth=0)
        for depth in range(1, min(self.tree_config.depth, self.max_draft_tokens)):
            best = self._nodes_to_expand(level)
            if not best:
                break
            parents = [expanded.index(self.nodes[node_id].parent) for node_id in best]
            mask = torch.cat((mask[parents], torch.eye(len(best), dtype=torch.bool)), dim=1)
            rows = hidden.index_select(0, copy_to_device(parents, hidden.device))
            head_output = self._forward_level(rows, best, mask, depth)
            expanded, hidden = best, head_output.hidden_states
            level = self._add_level(head_output.logits, expanded, depth)
        return self.to_draft_tree()

    def add_children(self, children: list[DraftedChild]) -> None:
        """Add the nodes that were computed on the device."""
        for child in children:
            parent = ROOT if child.parent is None else child.parent + 1  # behind the root
            self.nodes.append(_DraftNode(child.token, parent, child.log_probability))

    def add_nodes(self, nodes: DraftedNodes) -> None:
        """Add the nodes that a native kernel computed."""
        for token, parent, log_probability in zip(nodes.tokens, nodes.parents, nodes.log_probabilities, strict=True):
            self.nodes.append(_DraftNode(token, parent + 1, log_probability))  # behind the root

    def add_samples(self, samples: list[DraftSample]) -> None:
        """Add a chain that was sampled on the device, as long as it may be."""
        for sample in samples[: self.max_draft_tokens]:
            self._add_sample(sample, len(self.nodes) - 1)

    def _forward_level(self, hidden_states: Tensor, node_ids: list[int], draft_mask: Tensor, depth: int) -> HeadOutput:
        """Compute these nodes with the head. `draft_mask` [n, nodes of all levels]: the ancestors of each."""
        head, cache = self.drafter.head, self.drafter.cache
        tokens = [self.nodes[node_id].token for node_id in node_ids]
        batch = self.drafter.draft_pass(len(self.context.tokens) - 2 + depth, draft_mask, tokens)
        output = head.forward(hidden_states, head.embed(copy_to_device(tokens, hidden_states.device)), batch, cache)
        cache.commit(list(range(len(tokens))))  # for the next levels; rolled back when the tree is complete
        return output

    def _add_level(self, logits: Tensor, parents: list[int], depth: int) -> list[int]:
        """Add children to each parent from its row of logits; returns the new nodes."""
        sampler, ids = self.context.sampler, self.drafter.head.draft_to_target_ids
        paths = [self._path_tokens(parent) for parent in parents] if sampler.has_penalties else None
        rows = LogitRows([len(self.context.tokens) - 1 + depth] * len(parents), paths, ids)
        if sampler.wants_draft_samples:
            return self._add_sample(sampler.sample_draft(logits, rows, self.context.seen_tokens), parents[0])
        best = rank_rows(logits, sampler, rows, self.context.seen_tokens, count=SHORTLIST)
        tokens, scores = torch.stack((best.token_ids, best.scores)).tolist()  # one wait; ids are exact as floats
        first, width = len(self.nodes), self.tree_config.width
        for parent, row, row_scores in zip(parents, tokens, scores, strict=True):
            above, total = self.nodes[parent].log_probability, _log_sum_exp(row_scores)
            for token, score in zip(row[:width], row_scores, strict=False):
                self.nodes.append(_DraftNode(int(token), parent, above + min(score - total, 0.0)))
        return list(range(first, len(self.nodes)))

    def _add_sample(self, sample: DraftSample, parent: int) -> list[int]:
        """Add a sampled token. It counts as certain, because no sample may be dropped for its value."""
        self.nodes.append(_DraftNode(sample.token, parent, 0.0, sample))
        return [len(self.nodes) - 1]

    def _nodes_to_expand(self, level: list[int]) -> list[int]:
        """The best nodes of a level that are in the tree so far; none if their acceptance is too improbable."""
        in_tree = set(self._best_nodes())
        best = sorted((node_id for node_id in level if node_id in in_tree), key=self._sort_key)
        best = best[: self.tree_config.width]
        probability = sum(exp(self.nodes[node_id].log_probability) for node_id in best)
        return best if probability >= self.tree_config.min_level_probability else []

    def _best_nodes(self) -> list[int]:
        """The best nodes of all levels. A parent is never less probable than its child and precedes it."""
        probable = [
            node_id
            for node_id in range(1, len(self.nodes))
            if self.nodes[node_id].log_probability > MIN_LOG_PROBABILITY
        ]
        return sorted(probable, key=self._sort_key)[: self.max_draft_tokens]

    def _sort_key(self, node_id: int) -> tuple[float, int]:
        return -self.nodes[node_id].log_probability, node_id

    def to_draft_tree(self) -> DraftTree:
        """The best nodes, most probable first: the first n of them are the tree of a budget of n."""
        tree, tree_nodes, name = DraftTree(self.nodes[ROOT].token), {ROOT: ROOT}, self.drafter.name
        for node_id in self._best_nodes():
            node = self.nodes[node_id]
            parent = tree_nodes[node.parent]
            tree_nodes[node_id] = (
                tree.add_sample(node.sample, parent, name) if node.sample else tree.add(node.token, parent, name)
            )
        return tree

    def _path_tokens(self, node_id: int) -> list[int]:
        tokens: list[int] = []
        while node_id != ROOT:
            tokens.append(self.nodes[node_id].token)
            node_id = self.nodes[node_id].parent
        return tokens[::-1]


def _native_drafter(head: EagleHead, config: TreeConfig) -> NativeTreeDrafter | None:
    """What drafts on a CPU with this head, where all of its operations are native kernels."""
    if head.network is None:
        return None
    limits = TreeLimits(config.depth, config.width, config.min_level_probability, MIN_LOG_PROBABILITY)
    return NativeTreeDrafter(head.network, limits)


def _log_sum_exp(scores: list[float]) -> float:
    """Of scores with the highest first; 0 where none is finite."""
    highest = scores[0]
    return highest + log(sum(exp(score - highest) for score in scores)) if isfinite(highest) else 0.0


def graph_drafter(head: EagleHead, target: Model, tree_config: TreeConfig | None = None) -> GraphDrafter:
    """What drafts on a GPU with this head; its CUDA graphs belong to the head."""
    config = tree_config or (TreeConfig() if target.supports_trees else CHAIN_CONFIG)
    return GraphDrafter(head, config, MIN_LOG_PROBABILITY)


def _build(resources: DraftingResources, kind: str) -> Drafter | None:
    head = resources.heads.get(kind)
    return EagleDrafter(cast("EagleHead", head), resources.target) if head is not None else None


build_eagle, build_eagle3, build_mtp = (partial(_build, kind=kind) for kind in ("eagle", "eagle3", "mtp"))
