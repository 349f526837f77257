"""P-EAGLE (arXiv 2602.01469): EAGLE-3's pairs, with the masks of all further draft tokens in the same pass.

The new pairs of the text and the masks behind them are one pass of the head, however long the draft is. No position
knows the draft token before it, so the draft is a chain (`block_chain.py`). Only the pairs stay in the head's KV cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specchat.drafters.eagle.pair_drafter import PairDrafter
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat_heads.block_chain import DraftedBlocks, chain_of_block

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources
    from specchat_heads.peagle_head import PEagleHead


class PEagleDrafter(PairDrafter["PEagleHead"]):
    """Drafts a chain in one pass."""

    def __init__(self, head: PEagleHead, target: Model) -> None:
        super().__init__(head, target, head.tokens_ahead)

    def _draft(self, context: DraftContext, max_draft_tokens: int) -> DraftTree:
        block = DraftedBlocks(self._predict(context.tokens, max_draft_tokens)[None])
        return chain_of_block(context, block, self.name, self.head.draft_to_target_ids)

    def _predict(self, tokens: list[int], ahead: int) -> Tensor:
        """The logits of the next `ahead` tokens. The new pairs of the text are committed. [ahead, Vd]"""
        last_chunk = self._prefill_to_last_chunk(tokens)
        following = self._following_tokens(tokens, len(last_chunk))
        mask_states, mask_embeddings = self.head.mask_pairs(ahead - 1)
        hidden_states = torch.cat((self.head.fuse(last_chunk), mask_states))
        embeddings = torch.cat((self._embed(following), mask_embeddings))
        output = self._compute_rows(hidden_states, embeddings, ahead)
        self.cache.commit(list(range(len(following))))
        return output.logits


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get("peagle")
    return PEagleDrafter(cast("PEagleHead", head), resources.target) if head is not None else None
