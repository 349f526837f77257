"""A draft model: a small model with the target's tokens drafts a chain.

Speculative decoding as in Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318), with shared
randomness (arXiv 2408.07978).
It has a KV cache of its own that persists across turns, and it works on the target's token ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import CacheError
from specchat.forward.native.native_sampling import rank_rows

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources


class DraftModelDrafter(Drafter):
    """Drafts a chain with a small model; at T > 0 each token of it has a second-best sibling.

    With shared randomness the draft's second choice is often the target's first, so a sibling is worth its row; at
    T = 0 a longer chain is worth more.
    """

    name = "draft"

    def __init__(self, model: Model, chain_length: int = 4) -> None:
        self.model, self.chain_length = model, chain_length
        self.cache = model.pool.open()

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain of `chain_length` tokens, shorter if the budget or the draft model's context window ends."""
        tree = DraftTree(context.tokens[-1])
        siblings = 1 if context.sampler.temperature == 0 else 2
        chain_length = min(
            self.chain_length, context.max_draft_tokens // siblings, self.model.context_window - len(context.tokens)
        )
        if chain_length <= 0:
            return tree
        try:
            with self.model.pool.acquire_slot(self.cache, len(context.tokens) + SCRATCH_ROWS):
                self._draft_chain(tree, context, chain_length, siblings)
        except CacheError:  # no memory for the draft model's KV cache: continue without draft tokens
            return DraftTree(context.tokens[-1])
        self.cache.rollback(len(context.tokens) - 1)  # draft tokens may be wrong: keep committed tokens only
        return tree

    def forget(self, length: int) -> None:
        self.cache.rollback(length)

    def _draft_chain(self, tree: DraftTree, context: DraftContext, chain_length: int, siblings: int) -> None:
        """Each sampled token stays on the device as the next input; only penalties, which depend on the tokens before,
        wait for it.
        """
        unread = self._replace_unknown_tokens(context.tokens[self.cache.length :])
        while len(unread) > self.model.prefill_chunk:
            self.model.prefill(unread[: self.model.prefill_chunk], self.cache)
            unread = unread[self.model.prefill_chunk :]
        tokens, leaf, best = cast("list[int] | Tensor", unread), ROOT, list[Tensor]()
        for index in range(chain_length):
            logits = self.model.prefill(tokens, self.cache).logits
            if (seen := context.seen_tokens) is not None:  # on the target's device
                logits = logits.to(seen.counts.device)
            rows = LogitRows([len(context.tokens) - 1 + index], None if seen is None else [tree.path_tokens(leaf)])
            best.append(rank_rows(logits, context.sampler, rows, seen, siblings).token_ids)
            if seen is None:
                tokens = best[-1][0, :1]
            else:
                leaf = tree.add_siblings(best.pop()[0].tolist(), leaf, self.name)
                tokens = self._replace_unknown_tokens([tree.tokens[leaf]])
        for choices in torch.cat(best).tolist() if best else ():
            leaf = tree.add_siblings(choices, leaf, self.name)

    def _replace_unknown_tokens(self, tokens: list[int]) -> list[int]:
        """Replace tokens that only the target has (control tokens) by token 0."""
        return [token if token < self.model.vocab_size else 0 for token in tokens]


def build(resources: DraftingResources) -> Drafter | None:
    has_same_tokens = resources.draft_tokenizer is None
    return DraftModelDrafter(resources.draft_model) if resources.draft_model is not None and has_same_tokens else None
