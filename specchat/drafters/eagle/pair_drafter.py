"""The base of drafters whose head reads pairs: EAGLE, MTP and P-EAGLE.

A *pair* at position t is the hidden state of token t and the embedding of token t + 1. The target provides hidden
states of all committed tokens. The head's KV cache keeps only pairs with the target's states; the rows of a draft are
rolled back or never committed. The head attends to no more pairs than its training length. Knows no sampling.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from specchat.drafters.eagle.pair_passes import text_batch
from specchat.drafters.head_drafter import HeadDrafter
from specchat.engine.device import copy_to_device
from specchat.engine.hidden_states import CHUNK_TOKENS

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import HeadOutput, PairHead

Head = TypeVar("Head", bound="PairHead")


class PairDrafter(HeadDrafter[Head], ABC):
    reads_next_token = True

    def _first_unread(self, stored_tokens: int) -> int:
        self.cache.rollback(max(stored_tokens - 1 - self._first_position, 0))  # compute at least the last pair
        return super()._first_unread(stored_tokens)

    def _prefill_to_last_chunk(self, tokens: list[int], max_pairs: int = CHUNK_TOKENS) -> Tensor:
        """Compute the new pairs of the text but for the last ones; returns the target's states of those."""
        *chunks, last = self.hidden_states.chunks_from(self._first_unread(len(tokens) - 1))
        if len(last) > max_pairs:
            chunks, last = [*chunks, last[:-max_pairs]], last[-max_pairs:]
        for chunk in chunks:
            following = self._following_tokens(tokens, len(chunk))
            self._compute_rows(self.head.fuse(chunk), self._embed(following), logit_rows=0)
            self.cache.commit(list(range(len(chunk))))
        return last

    def _following_tokens(self, tokens: list[int], count: int) -> list[int]:
        """The tokens of the next `count` pairs: a pair has the token after its state."""
        first = self._first_position + self.cache.length + 1
        return tokens[first : first + count]

    def _embed(self, tokens: list[int]) -> Tensor:
        return self.head.embed(copy_to_device(tokens, self.head.pool.layout.device))

    def _compute_rows(self, hidden_states: Tensor, embeddings: Tensor, logit_rows: int) -> HeadOutput:
        """Compute rows behind the committed pairs, each of which sees those before it. They stay uncommitted."""
        batch = text_batch(self.cache, self._first_position, len(hidden_states), self.head.context_window)
        return self.head.forward(hidden_states, embeddings, batch, self.cache, logit_rows)
