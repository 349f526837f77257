"""What DSpark adds to a DFlash block: a low-rank Markov head, and a confidence head.

All slots of a block are computed at once, so none knows which tokens were drafted before it. The Markov head adds a
bias to the logits of a slot, computed from the token before it, and the confidence head predicts whether the token of
the slot will be accepted. So the slots are read in order. Knows neither the head's layers nor how a token is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.device import copy_to_device
from specchat.engine.model import Model
from specchat.forward.linear.linear import Linear
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.block_chain import DraftedBlocks, SlotOutput
from specchat_heads.dflash_head import DFlashHead


class SlotCorrection(Protocol):
    """Changes the logits of a slot by the token before it."""

    def correct(
        self, logits: Tensor, states: Tensor, tokens: Tensor, memory: Tensor | None, /
    ) -> tuple[SlotOutput, Tensor | None]:
        """One slot of n blocks: logits [n, Vd] and states [n, D] of the slot, tokens [n] before it; and new memory."""
        ...


class BlockCorrection:
    """The weights of both heads. Which tensors there are tells the forms of the Markov head apart.

    With `markov.gate` the bias depends on the slot's state too, with `markov.joint` on all tokens before the slot.
    """

    def __init__(self, spec: HeadSpec, loader: WeightLoader) -> None:
        def linear(name: str) -> Linear | None:
            return loader.linear(name) if f"{name}.weight" in spec.tensors else None

        self._embeddings, self._projection = loader.optional("markov.embeddings.weight"), linear("markov.projection")
        self._gate, self._joint, self._confidence = map(linear, ("markov.gate", "markov.joint", "confidence"))
        confidence_inputs = spec.tensors.shape("confidence.weight")[1] if self._confidence else 0
        self._confidence_reads_token = confidence_inputs > spec.dimensions.hidden_size

    def correct(
        self, logits: Tensor, states: Tensor, tokens: Tensor, memory: Tensor | None
    ) -> tuple[SlotOutput, Tensor | None]:
        """One slot of n blocks: logits [n, Vd] and states [n, D] of the slot, tokens [n] before it; and new memory."""
        embeddings = None
        if self._embeddings is not None and self._projection is not None:
            embeddings = functional.embedding(tokens, self._embeddings)
            latent, memory = self._latent(embeddings, states, memory)
            logits = logits + self._projection(latent)
        if self._confidence is None:
            return SlotOutput(logits, None), memory
        if self._confidence_reads_token:
            assert embeddings is not None, "inspection accepted a confidence head that reads a missing embedding"
            states = torch.cat((states, embeddings), dim=-1)
        return SlotOutput(logits, functional.logsigmoid(self._confidence(states)[:, 0].float())), memory

    def _latent(self, embeddings: Tensor, states: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The input of the projection [n, rank], and what the next slot needs to know of the tokens so far."""
        if self._gate is not None:
            return self._gate(torch.cat((states, embeddings), dim=-1)).sigmoid() * embeddings, None
        if self._joint is None:
            return embeddings, None
        memory = torch.zeros_like(embeddings) if memory is None else memory
        keep, candidate, output = self._joint(torch.cat((memory, embeddings, states), dim=-1)).chunk(3, dim=-1)
        keep = keep.sigmoid()
        return output.tanh(), keep * memory + (1.0 - keep) * candidate.tanh()


class CorrectedBlocks(DraftedBlocks):
    """The slots of n blocks, read one by one: each depends on the token before it."""

    is_sequential = True

    def __init__(self, logits: Tensor, states: Tensor, correction: SlotCorrection) -> None:
        super().__init__(logits)  # before any correction
        self._states, self._correction, self._memory = states, correction, None

    @torch.inference_mode()
    def next_slot(self, tokens: Sequence[int] | Tensor) -> SlotOutput:
        """The next slot of every block, after these tokens of the target. [n]"""
        slot, before = self._slot, copy_to_device(tokens, self.logits.device)
        logits = super().next_slot(tokens).logits
        output, self._memory = self._correction.correct(logits, self._states[:, slot], before, self._memory)
        return output


class DSparkHead(DFlashHead):
    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        super().__init__(spec, loader, target)
        self._correction = BlockCorrection(spec, loader)
        self.bytes = loader.loaded_bytes

    def blocks(self, logits: Tensor, states: Tensor) -> DraftedBlocks:
        return CorrectedBlocks(logits, states, self._correction)
