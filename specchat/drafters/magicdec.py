"""MagicDec (arXiv 2408.11049): the target drafts for itself from the first and the last tokens of a long text.

In a long text a pass spends much of its time on attention to the rows of the KV cache. A draft pass computes all layers
but sees only the attention sink, the first tokens, which softmax needs, and a window of the last tokens (StreamingLLM,
arXiv 2309.17453). They are the target's own rows, at the positions that they have in the text: nothing is copied, and
no memory is needed. It needs no training and pays only where the context is long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from specchat.drafters.self_drafter import CHAIN_LENGTH, SelfDrafter
from specchat.engine.cache import KVCache
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import SelfDraftingModel, self_drafting
from specchat.engine.tree import DraftTree

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources

SINK_TOKENS = 16  # whole blocks of the kernels
WINDOW_TOKENS = 512


class MagicDec(SelfDrafter):
    """Drafts with all layers over the sink and a window. A text that fits into both has nothing to skip: no draft."""

    name = "magicdec"
    min_chain_probability = 0.7  # one more draft pass costs more than half a plain one

    def __init__(
        self, model: SelfDraftingModel, window_tokens: int = WINDOW_TOKENS, chain_length: int = CHAIN_LENGTH
    ) -> None:
        super().__init__(model, chain_length)
        self.window_tokens = window_tokens

    def propose(self, context: DraftContext) -> DraftTree:
        if len(context.tokens) <= SINK_TOKENS + self.window_tokens:
            return DraftTree(context.tokens[-1])
        return super().propose(context)

    def draft_logits(self, token: int, cache: KVCache) -> Tensor:
        skipped = range(SINK_TOKENS, max(cache.length - self.window_tokens, SINK_TOKENS))
        return self.model.forward_windowed([token], cache, skipped)


def build(resources: DraftingResources) -> Drafter | None:
    target = self_drafting(resources.target)
    # a draft pass is no CUDA graph, so it would take longer than the target's
    return MagicDec(target) if target is not None and not target.has_graphs else None
