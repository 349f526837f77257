"""LayerSkip (arXiv 2404.16710): the first layers of the target draft, and all layers verify.

It is for targets that were trained for early exit. Draft and target share one KV cache: the draft writes its scratch
rows in the first layers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from specchat.drafters.self_drafter import CHAIN_LENGTH, SelfDrafter
from specchat.engine.cache import KVCache
from specchat.engine.drafter import Drafter
from specchat.engine.model import SelfDraftingModel, self_drafting

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources


class EarlyExit(SelfDrafter):
    """Drafts with the first `exit_layer` layers."""

    name = "exit"

    def __init__(self, model: SelfDraftingModel, exit_layer: int, chain_length: int = CHAIN_LENGTH) -> None:
        super().__init__(model, chain_length)
        self.exit_layer = exit_layer

    def draft_logits(self, token: int, cache: KVCache) -> Tensor:
        return self.model.forward_early_exit([token], cache, self.exit_layer)


def build(resources: DraftingResources) -> Drafter | None:
    target = self_drafting(resources.target) if resources.early_exit_layer else None
    return EarlyExit(target, resources.early_exit_layer) if target is not None else None
