"""DFlash (arXiv 2602.06036): a head fills a block of mask tokens in one pass: the draft.

The head turns the target's hidden states of the text into keys and values of its own, once for every token. A block is
the last committed token with mask tokens behind it. All positions are predicted at once and independently of each
other, so the draft is a chain (`block_chain.py`).

The head's cache holds only the states of the text, so a truncation drops rows. The head attends to no more tokens than
its training length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from specchat.drafters.block_chain import BlockChain
from specchat.drafters.heads.spec import DFLASH
from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.errors import CacheError

if TYPE_CHECKING:
    from specchat.drafters.heads.dflash_head import DFlashHead
    from specchat.drafters.registry import DraftingResources


class DFlashDrafter(Drafter):
    """Drafts a chain with a block head. It belongs to one text; the head's weights are shared."""

    def __init__(self, head: DFlashHead, target: Model) -> None:
        self.head, self.target = head, target
        self.name, self.hidden_state_layers = head.kind, head.hidden_state_layers
        self.cache = head.pool.open()
        self.hidden_states = HiddenStateBuffer()
        self._first_position = 0  # position of row 0 of the cache

    def propose(self, context: DraftContext) -> DraftTree:
        """The best token of each position; none while the target's hidden states of the text are missing."""
        tree, prefix_length = DraftTree(context.tokens[-1]), len(context.tokens) - 1
        ahead = min(self.head.tokens_ahead, context.max_draft_tokens)
        if self.hidden_states.end != prefix_length or self.hidden_states.start == prefix_length or ahead <= 0:
            return tree
        rows = min(prefix_length, 2 * self.head.context_window) + SCRATCH_ROWS
        try:
            with self.head.pool.acquire_slot(self.cache, rows):
                self._prefill(prefix_length)
                block = self.head.draft_block(
                    [context.tokens[-1]], [prefix_length], self.cache, self._first_position, ahead
                )
        except CacheError:  # no memory for the head's KV cache: continue without draft tokens
            return tree
        return BlockChain(context, block, self.name, self.head.draft_to_target_ids).build()

    def observe(self, outcome: Outcome) -> None:
        self.hidden_states.observe(outcome, self.target.hidden_state_layers, self.hidden_state_layers)

    def memory_bytes(self) -> int:
        return self.hidden_states.bytes

    def forget(self, length: int) -> None:
        self.hidden_states.truncate(length)
        self.cache.rollback(max(length - self._first_position, 0))

    def _prefill(self, prefix_length: int) -> None:
        """Write the new hidden states of the text to the head's cache, within its context window."""
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, prefix_length, self.head.context_window
        )
        position = self._first_position + self.cache.length
        if position == prefix_length:
            return
        for chunk in self.hidden_states.chunks_from(position):
            self.head.prefill(chunk, self._first_position + self.cache.length, self.cache)


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get(DFLASH)
    return DFlashDrafter(cast("DFlashHead", head), resources.target) if head is not None else None
