"""P-EAGLE (arXiv 2602.01469): a head like EAGLE-3's that predicts all draft tokens in one pass.

Behind the last pair of the text stand masks: pairs of one trained state and the embedding of the mask token. The last
pair predicts token t+2, and the masks predict t+3, t+4, … Each row sees those before it. Knows no drafting.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specchat.drafters.eagle.head import PairHead
from specchat.drafters.heads.draft_head import TESTED_DEPTH
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.model import Model
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.block_spec import BlockSpec


class PEagleHead(PairHead):
    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        super().__init__(spec, loader, target)
        assert isinstance(spec, BlockSpec), "a P-EAGLE head without a mask token"
        self.tokens_ahead, self.mask_token_id = spec.tokens_ahead, spec.block_config.mask_token_id
        self._mask_state = self.fuse(loader.tensor("mask_state").view(1, -1))
        self.bytes = loader.loaded_bytes

    @torch.inference_mode()
    def mask_pairs(self, count: int) -> tuple[Tensor, Tensor]:
        """The fused states and the embeddings of as many masks. [count, D] each"""
        tokens = torch.full((count,), self.mask_token_id, device=self._mask_state.device)
        return self._mask_state.expand(count, -1), self.embed(tokens)

    @property
    def tested_depth(self) -> int:
        return min(TESTED_DEPTH, self.tokens_ahead)

    def pairs_at(self, depth: int, hidden_states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Masks take the place of the pairs behind the last one of the text."""
        return self.mask_pairs(len(tokens)) if depth else super().pairs_at(depth, hidden_states, tokens)
