"""EAGLE and MTP: a small head continues the target's hidden states autoregressively.

EAGLE (arXiv 2401.15077), EAGLE-2 (2406.16858: the dynamic tree), EAGLE-3 (2503.01840: several layers) and the
multi-token prediction of DeepSeek-V3 (2412.19437) differ in the head alone, so they share one drafter. A head reads
pairs (`pair_drafter.py`), and predicts token t + 2 from the pair at t. Beyond the text, it reads its own output.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from specchat.drafters.eagle.dynamic_tree import (
    CHAIN_CONFIG,
    DraftedChild,
    TreeConfig,
    build_draft_tree,
    draft_children,
)
from specchat.drafters.eagle.graph import GraphTrees
from specchat.drafters.eagle.native_tree import NativeTrees
from specchat.drafters.eagle.pair_drafter import PairDrafter
from specchat.drafters.eagle.pair_passes import CachePasses, TextEnd
from specchat.drafters.heads.spec import EAGLE3, MTP
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.hidden_states import CHUNK_TOKENS
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import EagleHead
    from specchat.drafters.registry import DraftingResources


class TorchTrees:
    """Computes the last pairs of a text, which are committed then, and the children of all nodes that follow them.

    With operations of torch, on any device and for all samplers.
    """

    max_pairs = CHUNK_TOKENS  # in one draft; more are computed before

    def __init__(self, head: EagleHead, config: TreeConfig) -> None:
        self.head, self.config = head, config

    def draft(self, end: TextEnd, context: DraftContext, budget: int) -> list[DraftedChild]:
        """The children, parents first. Of the rows, only those of the pairs stay committed."""
        passes = CachePasses(self.head, end)
        root = passes.read_pairs()
        committed_pairs = end.cache.length
        try:
            return draft_children(self.config, context, budget, root, self.head.draft_to_target_ids, passes.read_level)
        finally:
            end.cache.rollback(committed_pairs)


TreeKernel = TorchTrees | GraphTrees | NativeTrees


class EagleDrafter(PairDrafter["EagleHead"]):
    """Drafts a chain or a dynamic tree with a head."""

    def __init__(self, head: EagleHead, target: Model, tree_config: TreeConfig | None = None) -> None:
        self.tree_config = tree_config or (TreeConfig() if target.supports_trees else CHAIN_CONFIG)
        super().__init__(head, target, self.tree_config.max_draft_tokens)
        self.kernel = tree_kernel(head, self.tree_config)

    def limit_width(self, width: int) -> None:
        self.tree_config = replace(self.tree_config, width=width)
        self.kernel = tree_kernel(self.head, self.tree_config)

    def _draft(self, context: DraftContext, max_draft_tokens: int) -> DraftTree:
        hidden_states = self._prefill_to_last_chunk(context.tokens, self.kernel.max_pairs)
        following = self._following_tokens(context.tokens, len(hidden_states))
        end = TextEnd(hidden_states, following, self.cache, self._first_position)
        children = self.kernel.draft(end, context, max_draft_tokens)
        return build_draft_tree(context.tokens[-1], children, max_draft_tokens, self.name)


def tree_kernel(head: EagleHead, config: TreeConfig) -> TreeKernel:
    """The fastest that can draft with this head here."""
    if GraphTrees.is_possible(head, config):
        return GraphTrees(head, config)
    return TorchTrees(head, config) if head.network is None else NativeTrees(head, head.network, config)


def build(resources: DraftingResources, kind: str) -> Drafter | None:
    """The drafter of a loaded head of this kind."""
    head = resources.heads.get(kind)
    return EagleDrafter(cast("EagleHead", head), resources.target) if head is not None else None


build_eagle3, build_mtp = (partial(build, kind=kind) for kind in (EAGLE3, MTP))
