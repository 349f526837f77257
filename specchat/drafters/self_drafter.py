"""Self-speculation: a cheaper pass of the target itself drafts a chain, on the target's own KV cache.

The draft continues from the target's committed rows and writes scratch rows behind them. It rolls them back before it
returns, and the verifying pass writes the same rows again. Which part of its work the target leaves out is for the
subclass to say; this file knows neither layers nor windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import SelfDraftingModel
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.forward.native.native_sampling import rank_rows

CHAIN_LENGTH = 4
SHORTLIST = 8  # best tokens that get a probability


class SelfDrafter(Drafter, ABC):
    """Drafts a chain with the target; at T > 0 each token of it has a second-best sibling.

    It needs the target's cache of the whole text except the last token, and proposes nothing without it.
    """

    min_chain_probability = 0.4  # a chain below this probability ends

    def __init__(self, model: SelfDraftingModel, chain_length: int = CHAIN_LENGTH) -> None:
        self.model, self.chain_length = model, chain_length

    @abstractmethod
    def draft_logits(self, token: int, cache: KVCache) -> Tensor:
        """What a cheaper pass over this token predicts, behind the rows of the cache. It commits nothing. [1, V]"""

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
            logits = self.draft_logits(tree.tokens[leaf], cache)
            cache.commit([0])  # until `propose` rolls back
            paths = [tree.path_tokens(leaf)] if context.sampler.has_penalties else None
            rows = LogitRows([len(context.tokens) - 1 + index], paths)
            best = rank_rows(logits, context.sampler, rows, context.seen_tokens, count=SHORTLIST)
            probability *= float(best.scores[0].softmax(-1)[0])
            leaf = tree.add_siblings(best.token_ids[0, :siblings].tolist(), leaf, self.name)
            if probability < self.min_chain_probability:
                return
