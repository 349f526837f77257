"""A small model of the same family guesses ahead, with the dice that the target will meet.

Speculative decoding as in Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318), with shared dice
(arXiv 2408.07978); under the classic rule with dice of its own, and a report of what they were thrown over. It has a
cache of its own that lives through turns, and never sees a template: it is given the target's token ids.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import CacheError
from specchat.forward.llama import LlamaModel


class DraftModelDrafter(Drafter):
    """A small model guesses a chain; at T > 0 each link has a second-best sibling.

    With shared dice the draft's second choice is often the target's first, so a sibling is worth its row; at T = 0
    a longer chain is. Under the classic rule each link is one draw.
    """

    name = "draft"

    def __init__(self, model: Model, chain_length: int = 4) -> None:
        self.model, self.chain_length = model, chain_length
        self.cache = model.pool.open()

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain of `guesses` links, fewer when the budget is smaller or the text outgrows the draft's window."""
        tree = DraftTree(context.tokens[-1])
        children = 1 if context.sampler.temperature == 0 or context.sampler.wants_draft_samples else 2
        links = min(
            self.chain_length, context.max_draft_tokens // children, self.model.context_window - len(context.tokens)
        )
        if links <= 0:
            return tree
        try:
            with self.model.pool.acquire_slot(self.cache, len(context.tokens) + SCRATCH_ROWS):
                self._draft_chain(tree, context, links, children)
        except CacheError:  # no room for the draft's keys and values: the answer goes on without guesses
            return DraftTree(context.tokens[-1])
        self.cache.rollback(len(context.tokens) - 1)  # the guesses may be wrong: only sure tokens stay
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.cache.rollback(length)

    def _draft_chain(self, tree: DraftTree, context: DraftContext, chain_length: int, siblings: int) -> None:
        unread = self._replace_unknown_tokens(context.tokens[self.cache.length :])
        while len(unread) > self.model.prefill_chunk:
            self.model.prefill(unread[: self.model.prefill_chunk], self.cache)
            unread = unread[self.model.prefill_chunk :]
        if context.sampler.wants_draft_samples or context.sampler.has_penalties:
            self._draft_token_by_token(tree, context, chain_length, siblings, unread)
        else:
            self._draft_on_device(tree, context, chain_length, siblings, unread)

    def _draft_on_device(
        self, tree: DraftTree, context: DraftContext, chain_length: int, siblings: int, unread: list[int]
    ) -> None:
        """Each link is read where it was picked, on the device; it is waited for once, when all are there."""
        best, reading = list[Tensor](), cast("list[int] | Tensor", unread)
        for link in range(chain_length):
            logits = self.model.prefill(reading, self.cache).logits
            rows = LogitRows([len(context.tokens) - 1 + link])
            best.append(context.sampler.rank(logits, rows, count=siblings).token_ids)
            reading = best[-1][0, :1]
            if (
                link == 0
                and (others := self._draft_with_cuda_graph(reading, chain_length - 1, context.sampler)) is not None
            ):
                best.append(others)
                break
        leaf = ROOT
        for choices in torch.cat(best).tolist():
            leaf = tree.add_siblings(choices, leaf, self.name)

    def _draft_with_cuda_graph(self, token: Tensor, chain_length: int, sampler: Sampler) -> Tensor | None:
        """The other links at once, where the model has recordings and the likeliest token is all there is to pick."""
        if chain_length == 0 or sampler.temperature > 0 or not isinstance(self.model, LlamaModel):
            return None
        tokens = self.model.draft_chain(
            token,
            chain_length,
            self.cache,
            lambda logits: sampler.rank(logits, LogitRows([0])).token_ids[:, 0],
            sampler.vocab_size,
        )
        return tokens[:, None] if tokens is not None else None

    def _draft_token_by_token(
        self, tree: DraftTree, context: DraftContext, chain_length: int, siblings: int, unread: list[int]
    ) -> None:
        """For rules that look back at the guesses themselves, and for draws, which are reported with each link."""
        leaf = ROOT
        for link in range(chain_length):
            logits = self.model.prefill(unread, self.cache).logits
            if context.seen_tokens is not None:  # lies where the target computes
                logits = logits.to(context.seen_tokens.mask.device)
            rows = LogitRows([len(context.tokens) - 1 + link], [tree.path_tokens(leaf)])
            if context.sampler.wants_draft_samples:
                leaf = tree.add_sample(context.sampler.sample_draft(logits, rows, context.seen_tokens), leaf, self.name)
            else:
                best = context.sampler.rank(logits, rows, context.seen_tokens, count=siblings).token_ids[0].tolist()
                leaf = tree.add_siblings(best, leaf, self.name)
            unread = self._replace_unknown_tokens([tree.tokens[leaf]])

    def _replace_unknown_tokens(self, tokens: list[int]) -> list[int]:
        """A target may have control tokens that its draft has no row for; the draft reads its first token instead."""
        return [token if token < self.model.vocab_size else 0 for token in tokens]
