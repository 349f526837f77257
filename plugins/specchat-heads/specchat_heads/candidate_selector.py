"""What DFlash-2 adds behind a block: a choice among the best tokens of each slot, by the token before it.

All slots of a block are computed at once, so the best tokens of two neighbours may not fit together. The selector adds
to the logit of each candidate how well it follows the token before: the product of three vectors, of that token, of the
slot's state and of the candidate. So the slots are read in order. Knows neither layers nor how a token is chosen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.model import Model
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.block_chain import DraftedBlocks, SlotOutput
from specchat_heads.block_convolution import ConvolvedBackbone
from specchat_heads.block_correction import CorrectedBlocks
from specchat_heads.dflash_head import DFlashHead


class CandidateSelector:
    def __init__(self, loader: WeightLoader, candidates: int) -> None:
        self._predecessors, self._successors = (
            loader.tensor(f"selector.{name}") for name in ("predecessors", "successors")
        )
        self._projection, self._candidates = loader.linear("selector.projection"), candidates

    def correct(
        self, logits: Tensor, states: Tensor, tokens: Tensor, _memory: Tensor | None
    ) -> tuple[SlotOutput, Tensor | None]:
        """One slot of n blocks: logits [n, V] and states [n, D] of the slot, tokens [n] before it.

        All tokens but the candidates get the logit -inf.
        """
        best, candidates = logits.topk(self._candidates)
        context = functional.embedding(tokens, self._predecessors) * self._projection(states)
        fits = (context[:, None] * functional.embedding(candidates, self._successors)).sum(-1)
        scored = torch.full_like(logits, -torch.inf).scatter_(1, candidates, best + fits)
        return SlotOutput(scored, None), None


class DFlash2Head(DFlashHead):
    backbone = ConvolvedBackbone

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model, candidates: int) -> None:
        super().__init__(spec, loader, target)
        self._selector = CandidateSelector(loader, min(candidates, spec.target_vocab_size))
        self.bytes = loader.loaded_bytes

    def blocks(self, logits: Tensor, states: Tensor) -> DraftedBlocks:
        return CorrectedBlocks(logits, states, self._selector)
