"""The first layers of the target guess, and all of them verify: one network, one set of keys and values.

LayerSkip (arXiv 2404.16710), for targets that were trained to be understood early. The exit reads on from the target's
own rows. Rows of its guesses stand behind the sure ones as scratch paper, with keys and values in the first layers
only; they are taken back before anybody else looks, and the pass that verifies writes the same rows in every layer.
"""

from __future__ import annotations

from specchat.engine.cache import KVCache
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import EarlyExitModel
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree

SHORTLIST = 8  # best tokens among which a guess has its chance
MIN_CHAIN_PROBABILITY = 0.4  # a chain whose chance to hold is smaller is not drafted further


class EarlyExit(Drafter):
    """A chain by the first `layers` layers; at T > 0 each link has a second-best sibling, as with a draft model.

    It reads on from the target's own cache of the text: while that does not hold the whole text but the last token, it
    is silent.
    """

    name = "exit"

    def __init__(self, model: EarlyExitModel, exit_layer: int, chain_length: int = 4) -> None:
        self.model, self.exit_layer, self.chain_length = model, exit_layer, chain_length

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain of at most `guesses` links; it ends early where it is likely to be wrong."""
        tree, known, cache = DraftTree(context.tokens[-1]), len(context.tokens) - 1, context.cache
        if cache is None or cache.slot is None or cache.length != known:
            return tree
        children = 1 if context.sampler.temperature == 0 or not self.model.supports_trees else 2
        room = min(self.model.context_window, cache.slot.rows) - len(context.tokens)
        try:
            self._draft_chain(
                tree, context, cache, min(self.chain_length, context.max_draft_tokens // children, room), children
            )
        finally:
            cache.rollback(known)
        return tree

    def _draft_chain(
        self, tree: DraftTree, context: DraftContext, cache: KVCache, chain_length: int, siblings: int
    ) -> None:
        leaf, held = ROOT, 1.0
        for link in range(chain_length):
            logits = self.model.forward_early_exit([tree.tokens[leaf]], cache, self.exit_layer)
            cache.commit([0])  # for the next link; only until the chain is done
            paths = [tree.path_tokens(leaf)] if context.sampler.has_penalties else None
            rows = LogitRows([len(context.tokens) - 1 + link], paths)
            best = context.sampler.rank(logits, rows, context.seen_tokens, count=SHORTLIST)
            held *= float(best.scores[0].softmax(-1)[0])
            leaf = tree.add_siblings(best.token_ids[0, :siblings].tolist(), leaf, self.name)
            if held < MIN_CHAIN_PROBABILITY:
                return
