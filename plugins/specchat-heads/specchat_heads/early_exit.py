"""LayerSkip (arXiv 2404.16710): the first layers of the target draft, and all layers verify.

It is for targets that were trained for early exit. Draft and target share one KV cache: the draft continues from the
committed rows, writes scratch rows behind them in the first layers only, and rolls them back before it returns. The
verifying pass writes the same rows again. So it reads the target's KV cache, and runs without the guard of plugins.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import ModelError
from specchat.forward.native.native_sampling import rank_rows

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources

CHAIN_LENGTH = 4
SHORTLIST = 8  # best tokens that get a probability
MIN_CHAIN_PROBABILITY = 0.4  # a chain below this probability ends


class SelfDraftingModel(Model, Protocol):
    """A model with passes over its first layers, whose keys and values stay in the cache, uncommitted."""

    def forward_early_exit(self, tokens: list[int], cache: KVCache, exit_layer: int) -> Tensor:
        """Compute tokens with the first layers, final norm and output matrix. Logits of the last token [1, V]"""
        ...


class EarlyExit(Drafter):
    """Drafts a chain with the first `exit_layer` layers; at T > 0 each token of it has a second-best sibling.

    It needs the target's cache of the whole text except the last token, and proposes nothing without it.
    """

    name = "exit"
    drafts_with_models = True

    def __init__(self, model: SelfDraftingModel, exit_layer: int, chain_length: int = CHAIN_LENGTH) -> None:
        self.model, self.exit_layer, self.chain_length = model, exit_layer, chain_length

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain of at most `chain_length` tokens; it ends early when it is probably wrong."""
        tree, prefix_length, cache = DraftTree(context.tokens[-1]), len(context.tokens) - 1, context.cache
        if cache is None or cache.slot is None or cache.length != prefix_length:
            return tree
        siblings = 1 if context.sampler.temperature == 0 or not self.model.supports_trees else 2
        free_rows = min(self.model.context_window, cache.slot.rows) - len(context.tokens)
        chain_length = min(self.chain_length, context.max_draft_tokens // siblings, free_rows)
        try:
            self._draft_chain(tree, context, cache, chain_length, siblings)
        finally:
            cache.rollback(prefix_length)
        return tree

    def _draft_chain(
        self, tree: DraftTree, context: DraftContext, cache: KVCache, chain_length: int, siblings: int
    ) -> None:
        leaf, probability = ROOT, 1.0
        for index in range(chain_length):
            logits = self.model.forward_early_exit([tree.tokens[leaf]], cache, self.exit_layer)
            cache.commit([0])  # until `propose` rolls back
            paths = [tree.path_tokens(leaf)] if context.sampler.has_penalties else None
            rows = LogitRows([len(context.tokens) - 1 + index], paths)
            best = rank_rows(logits, context.sampler, rows, context.seen_tokens, count=SHORTLIST)
            probability *= float(best.scores[0].softmax(-1)[0])
            leaf = tree.add_siblings(best.token_ids[0, :siblings].tolist(), leaf, self.name)
            if probability < MIN_CHAIN_PROBABILITY:
                return


def build(resources: DraftingResources) -> Drafter | None:
    target, folder = resources.target, resources.target_folder
    layer = exit_layer(folder) if folder is not None else 0
    if not target.supports_self_drafting or layer == 0:
        return None
    if layer >= target.layer_count:
        raise ModelError(f"{folder}: early_exit_layers has {layer}, and the model has {target.layer_count} layers")
    return EarlyExit(cast("SelfDraftingModel", target), layer)


def exit_layer(folder: Path) -> int:
    """After how many layers drafting ends, as the config of the target says; 0 for no early exit."""
    layers = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("early_exit_layers")
    return int(layers[0]) if layers else 0
