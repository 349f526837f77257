"""Heads that compute: what draws a guess from the hidden states that the target leaves behind.

A `FeatureHead` is a block over pairs (feature of token t, embedding of token t+1) and speaks of token t+2: EAGLE-1,
EAGLE-2 (the same weights), EAGLE-3 and MTP. What tells them apart is which tensors are there and a few facts of their
`HeadSpec`. A `MedusaHead` reads the last feature alone and speaks of several tokens ahead. Heads that fill a whole
block at once are in `blocks.py`.

Knows tensors by canonical name; how publishers spell them is the business of `checkpoints.py`, and which guess to
follow that of the drafters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache
from specchat.engine.model import FINAL_NORM, Model
from specchat.errors import ModelError
from specchat.forward.attention import build_additive_mask
from specchat.forward.batch import RowBatch
from specchat.forward.linear import Linear
from specchat.heads.dflash_head import DFlashHead
from specchat.heads.layers import LayerStack
from specchat.heads.spec import DFLASH, MEDUSA, HeadSpec, TargetDimensions, mismatches
from specchat.models.tensor_files import WeightLoader


@dataclass(frozen=True)
class HeadOutput:
    """What a head says at the rows that it was asked about."""

    logits: Tensor  # [scored, Vd]
    hidden_states: Tensor  # [scored, D], to be fed back in place of the feature that nobody knows yet


class EagleHead:
    """A block that turns pairs into features and logits, over a cache of its own.

    Its embeddings are not always the target's: take them from `embed`.
    """

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.kind, self.context_window, self.wiring = spec.kind, spec.context_window, spec.wiring
        self.hidden_state_layers = spec.hidden_state_layers_for(len(target.pool.layout.shapes))
        self._layer_stack = stack = LayerStack(spec, loader, target.pool.layout.dtype)
        self.pool = stack.pool
        self._per_layer_norms = [
            stack.norm_weight(f"fc_norm.{index}") for index in range(len(self.hidden_state_layers))
        ]
        self._concatenated_norm = stack.norm_weight("input_norm")
        self._fc = loader.linear("fc") if "fc.weight" in spec.tensors else None
        self._embedding_norm, self._feature_norm = (
            stack.norm_weight("embedding_norm"),
            stack.norm_weight("feature_norm"),
        )
        self._pair_projection = loader.linear("join") if "join.weight" in spec.tensors else None
        self._final_norm = stack.norm_weight("norm")
        self._own_embeddings = loader.optional("embed_tokens.weight")
        own = loader.linear("lm_head") if "lm_head.weight" in spec.tensors else None
        self._lm_head = own or target.compute_logits
        self._embed = target.embed
        self.draft_to_target_ids = spec.draft_to_target_ids().to(loader.device) if "d2t" in spec.tensors else None
        self.bytes = loader.loaded_bytes

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of tokens as this head was trained with them, its own or the target's. [n] -> [n, D]"""
        return (
            self._embed(tokens) if self._own_embeddings is None else functional.embedding(tokens, self._own_embeddings)
        )

    @torch.inference_mode()
    def fuse(self, hidden_states: Tensor) -> Tensor:
        """What the head makes of the tapped states of a token: EAGLE-3's `fc`. [n, taps * D] -> [n, D]"""
        if self._fc is None:
            return hidden_states
        parts = hidden_states.chunk(len(self.hidden_state_layers), dim=-1)
        normed = self._layer_stack.rms_norm
        parts = [normed(part, weight) for part, weight in zip(parts, self._per_layer_norms, strict=True)]
        return self._fc(normed(torch.cat(parts, dim=-1), self._concatenated_norm))

    @torch.inference_mode()
    def forward(
        self, hidden_states: Tensor, embeddings: Tensor, batch: RowBatch, cache: KVCache, logit_rows: int | None = None
    ) -> HeadOutput:
        """Read pairs: features [N, D], true and fused or its own output, with embeddings [N, D] of the tokens after.

        Keys and values of the N rows go behind `cache.length` and stay uncommitted, as those of a target's pass. Says
        something of the last `scored` rows only, or of all: over a prompt, an output matrix is most of the work.
        """
        stack, (stream, rows) = self._layer_stack, self._fuse_inputs(hidden_states, embeddings)
        turn, shared = stack.rope_angles(batch.positions, stream), stack.dimensions.heads // stack.dimensions.kv_heads
        masks = {
            window: build_additive_mask(batch, window, shared, stream)
            for window in {layer.sliding_window for layer in stack.layers}
        }
        for index, layer in enumerate(stack.layers):
            rows = rows if index == 0 else stack.rms_norm(stream, layer.input_layernorm)
            stream = stack.forward_layer(index, stream, rows, turn, masks[layer.sliding_window], cache, batch.kv_length)
        stream = stream if logit_rows is None else stream[len(stream) - logit_rows :]
        normed = stack.rms_norm(stream, self._final_norm)
        return HeadOutput(self._lm_head(normed), normed if self.wiring.feeds_back_normed else stream)

    def _fuse_inputs(self, hidden_states: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream [N, D], and what the first attention reads: [N, D], or the pair itself [N, 2D]."""
        normed = self._layer_stack.rms_norm
        embedding, feature = normed(embeddings, self._embedding_norm), normed(hidden_states, self._feature_norm)
        pair = torch.cat((feature, embedding) if self.wiring.is_feature_first else (embedding, feature), dim=-1)
        if self._pair_projection is None:
            return feature if self.wiring.residual_is_normed else hidden_states, pair
        stream = self._pair_projection(pair)
        return stream, normed(stream, self._layer_stack.layers[0].input_layernorm)


class MedusaHead:
    """Residual blocks over the last feature; the k-th speaks of the token k places after the next one.

    arXiv 2401.10774. The first kind brings an output matrix of its own for every place, the second shares the target's.
    """

    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.tokens_ahead = spec.tokens_ahead
        depths = [
            sum(f"blocks.{index}.{depth}.weight" in spec.tensors for depth in range(9))
            for index in range(self.tokens_ahead)
        ]
        self._blocks = [
            [loader.linear(f"blocks.{index}.{depth}") for depth in range(deep)] for index, deep in enumerate(depths)
        ]
        names = [f"heads.{index}" for index in range(self.tokens_ahead)]
        self._lm_heads = [loader.linear(name) for name in names] if "heads.0.weight" in spec.tensors else []
        self._target_lm_head, self.bytes = target.compute_logits, loader.loaded_bytes

    @torch.inference_mode()
    def logits(self, hidden_states: Tensor) -> list[Tensor]:
        """Features after the final norm [n, D] -> logits [n, V] of the tokens t+2, t+3, …"""
        ahead = [self._residual_blocks(blocks, hidden_states) for blocks in self._blocks]
        if self._lm_heads:
            return [head(rows) for head, rows in zip(self._lm_heads, ahead, strict=True)]
        return list(self._target_lm_head(torch.cat(ahead)).split(len(hidden_states)))

    def _residual_blocks(self, blocks: list[Linear], rows: Tensor) -> Tensor:
        for block in blocks:
            rows = rows + functional.silu(block(rows))
        return rows


LoadedHead = EagleHead | MedusaHead | DFlashHead


def load_head(spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device) -> LoadedHead:
    """The network of a head, beside the target that it was trained for; ModelError says why the two are no pair.

    It runs in the dtype of the target (`dtype` None), whose states, embeddings and output it shares.
    """
    width = target.embed(torch.zeros(1, dtype=torch.long, device=device)).shape[-1]
    facts = TargetDimensions(width, len(target.pool.layout.shapes) or None, target.vocab_size)
    if reasons := mismatches(spec, facts):
        raise ModelError(f"{spec.source}: this {spec.format} head does not fit the target: {'; '.join(reasons)}")
    loader = WeightLoader(spec.tensors, dtype or target.pool.layout.dtype, device, checks_finite=True)
    kinds = {MEDUSA: MedusaHead, DFLASH: DFlashHead}
    return kinds.get(spec.kind, EagleHead)(spec, loader, target)
