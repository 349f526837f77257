"""The base of drafters whose head reads pairs: EAGLE, MTP and P-EAGLE.

A *pair* at position t is the hidden state of token t and the embedding of token t + 1. The target provides hidden
states of all committed tokens. The head's KV cache keeps only pairs with the target's states; the rows of a draft are
rolled back or never committed. The head attends to no more pairs than its training length. Knows no sampling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import Tensor

from specchat.drafters.eagle.pair_passes import text_batch
from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import CHUNK_TOKENS, HiddenStateBuffer
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.errors import CacheError

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import HeadOutput, PairHead

Head = TypeVar("Head", bound="PairHead")


class PairDrafter(Drafter, ABC, Generic[Head]):
    """It belongs to one text; the head's weights are shared."""

    def __init__(self, head: Head, target: Model, max_draft_tokens: int) -> None:
        self.head, self.target, self.max_draft_tokens = head, target, max_draft_tokens
        self.name, self.hidden_state_layers = head.kind, head.hidden_state_layers
        self.cache = head.pool.open()
        self.hidden_states = HiddenStateBuffer()
        self._first_position = 0  # position of row 0 of the cache

    @abstractmethod
    def _draft(self, context: DraftContext, max_draft_tokens: int) -> DraftTree:
        """A draft of at least one token, and not more. The cache has a slot, and the states of the text are there."""

    def propose(self, context: DraftContext) -> DraftTree:
        """The most probable draft tokens; none while the target's hidden states of the text are missing."""
        tree, states, length = DraftTree(context.tokens[-1]), self.hidden_states, len(context.tokens)
        max_draft_tokens = min(self.max_draft_tokens, context.max_draft_tokens)
        if states.end != length - 1 or states.start == states.end or max_draft_tokens <= 0:
            return tree
        rows = min(length, 2 * self.head.context_window) + SCRATCH_ROWS
        try:
            with self.head.pool.acquire_slot(self.cache, rows):
                return self._draft(context, max_draft_tokens)
        except CacheError:  # no memory for the head's KV cache: continue without draft tokens
            return tree

    def observe(self, outcome: Outcome) -> None:
        self.hidden_states.observe(outcome, self.target.hidden_state_layers, self.hidden_state_layers)

    def memory_bytes(self) -> int:
        return self.hidden_states.bytes

    def forget(self, length: int) -> None:
        self.hidden_states.truncate(length)
        self.cache.rollback(max(length - 1 - self._first_position, 0))  # a pair includes the next token

    def _first_unread(self, stored_tokens: int) -> int:
        """The position of the first pair to compute, after rows that are too old or not continuous are dropped."""
        self.cache.rollback(max(stored_tokens - 1 - self._first_position, 0))  # compute at least the last pair
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, stored_tokens, self.head.context_window
        )
        return self._first_position + self.cache.length

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
