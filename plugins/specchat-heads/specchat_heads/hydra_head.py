"""Hydra (arXiv 2402.05109): Medusa's heads, where each also reads the embeddings of the draft tokens before its own.

Head k predicts token t+2+k from the state of token t and the tokens t+1 to t+1+k. So its output differs from path to
path. Hydra++ has a decoder layer below the heads, which reads the target's hidden states of the whole text.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.heads.backbone import HeadBackbone
from specchat.drafters.heads.draft_head import DraftHead, TargetSample
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.model import FINAL_NORM, Model
from specchat.forward.batch import RowBatch
from specchat.weights.tensor_files import WeightLoader


class HydraHead(DraftHead):
    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.tokens_ahead, self.context_window = spec.tokens_ahead, spec.context_window
        self._backbone = HeadBackbone(spec, loader, target) if spec.dimensions.layers else None
        layout = target.pool.layout
        self.pool = self._backbone.pool if self._backbone else KVPool(KVLayout((), layout.dtype, layout.device))
        self._columns = [_Column(index, spec, loader) for index in range(self.tokens_ahead)]
        self._embed, self.bytes = target.embed, loader.loaded_bytes

    @torch.inference_mode()
    def prefill(self, hidden_states: Tensor, cache: KVCache, first_position: int = 0) -> Tensor:
        """The states that the heads read, for the target's hidden states of the next tokens of the text. [n, D]

        Keys and values of the tokens are committed. `first_position` is the position of row 0 of the cache.
        """
        length, count = cache.length, len(hidden_states)
        if self._backbone is not None:
            mask = torch.ones(count, length + count, dtype=torch.bool).tril_(length)
            positions = torch.arange(length, length + count) + first_position
            batch = RowBatch([0] * count, positions, mask, length, first_position)
            if length + count > self.context_window:
                batch = replace(batch, attention_mask=batch.sliding_window_mask(self.context_window))
            hidden_states = self._backbone.forward(hidden_states, batch, cache).final
        cache.commit(list(range(count)))
        return hidden_states

    @torch.inference_mode()
    def logits(self, states: Tensor, tokens: Tensor) -> Tensor:
        """States [n, D] of token t and the tokens [n, k + 1] after it -> logits [n, V] of the token after these."""
        column = self._columns[tokens.shape[1] - 1]
        embeddings = self._embed(tokens.flatten()).view(len(tokens), -1)
        return column.logits(states, embeddings)

    def kv_pools(self) -> tuple[KVPool, ...]:
        return (self.pool,)

    @torch.inference_mode()
    def predictions(self, sample: TargetSample) -> list[Tensor]:
        """The heads after every position, with the sampled tokens as path."""
        cache = self.pool.open()
        with self.pool.acquire_slot(cache, len(sample.probabilities) + SCRATCH_ROWS):
            states = self.prefill(sample.hidden_states, cache)
        self.pool.close(cache)
        paths = torch.stack([sample.tokens_after(depth) for depth in range(self.tokens_ahead)], dim=1)
        return [self.logits(states, paths[:, : depth + 1]).argmax(-1) for depth in range(self.tokens_ahead)]


class _Column:
    """One head: residual blocks, of which the first reads the embeddings too, and an LM head."""

    def __init__(self, index: int, spec: HeadSpec, loader: WeightLoader) -> None:
        depth = sum(name.startswith(f"blocks.{index}.") and name.endswith(".weight") for name in spec.tensors.locations)
        self._first, *self._blocks = [loader.linear(f"blocks.{index}.{block}") for block in range(depth)]
        shortcut = f"shortcuts.{index}"
        self._shortcut = loader.linear(shortcut) if f"{shortcut}.weight" in spec.tensors else None
        self._lm_head = loader.linear(f"heads.{index}")

    def logits(self, states: Tensor, embeddings: Tensor) -> Tensor:
        rows = states
        if self._shortcut is not None:
            states = torch.cat((states, embeddings), dim=-1)
            rows = self._shortcut(states)
        rows = rows + functional.silu(self._first(states))
        for block in self._blocks:
            rows = rows + functional.silu(block(rows))
        return self._lm_head(rows)
