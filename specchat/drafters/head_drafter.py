"""The base of drafters whose head reads the target's hidden states, and has a KV cache of its own for each text.

The cache keeps rows of committed tokens only, no more of them than the head was trained for. Knows no sampling.
"""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from specchat.drafters.heads.draft_head import CachingHead
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.errors import CacheError

Head = TypeVar("Head", bound=CachingHead)


class HeadDrafter(Drafter, ABC, Generic[Head]):
    """It belongs to one text; the head's weights are shared."""

    reads_next_token = False  # whether a row of the cache includes the token after its position

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
        self.cache.rollback(max(length - self.reads_next_token - self._first_position, 0))

    def _first_unread(self, stored_tokens: int) -> int:
        """The position of the first row to compute, after rows that are too old or not continuous are dropped."""
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, stored_tokens, self.head.context_window
        )
        return self._first_position + self.cache.length
