"""DFlash (arXiv 2602.06036), DFlash-2 and DSpark: a head fills a block of mask tokens in one pass: the draft.

The head turns the target's hidden states of the text into keys and values of its own, once for every token. A block is
the last committed token with mask tokens behind it. All positions are predicted at once and independently of each
other, so the draft is a chain (`block_chain.py`). DFlash-2 and DSpark correct the slots one by one, and with DSpark's
confidence head the chain ends before a token that the head does not trust.

The head's cache holds only the states of the text, so a truncation drops rows. The head attends to no more tokens than
its training length.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from specchat.drafters.head_drafter import HeadDrafter
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat_heads.block_chain import chain_of_block

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources
    from specchat_heads.dflash_head import DFlashHead


class DFlashDrafter(HeadDrafter["DFlashHead"]):
    """Drafts a chain with a block head."""

    def __init__(self, head: DFlashHead, target: Model) -> None:
        super().__init__(head, target, head.tokens_ahead)

    def _draft(self, context: DraftContext, max_draft_tokens: int) -> DraftTree:
        """The best token of each position."""
        stored_tokens = len(context.tokens) - 1
        if (position := self._first_unread(stored_tokens)) < stored_tokens:
            for chunk in self.hidden_states.chunks_from(position):
                self.head.prefill(chunk, self._first_position + self.cache.length, self.cache)
        root = [context.tokens[-1]]
        block = self.head.draft_block(root, [stored_tokens], self.cache, self._first_position, max_draft_tokens)
        return chain_of_block(context, block, self.name, self.head.draft_to_target_ids)


def _build(resources: DraftingResources, kind: str) -> Drafter | None:
    head = resources.heads.get(kind)
    return DFlashDrafter(cast("DFlashHead", head), resources.target) if head is not None else None


build_dflash, build_dflash2, build_dspark = (partial(_build, kind=kind) for kind in ("dflash", "dflash2", "dspark"))
