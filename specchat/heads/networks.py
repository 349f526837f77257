"""Heads that draft from the hidden states of the target.

An `EagleHead` runs decoder layers over pairs (hidden state of token t, embedding of token t+1) and predicts token t+2:
EAGLE-1, EAGLE-2 (the same weights), EAGLE-3 and MTP. Which tensors it has, and the wiring in its `HeadSpec`, tell them
apart. A `MedusaHead` predicts several tokens from the last hidden state alone. Block heads are in `dflash_head.py`,
Hydra in `hydra_head.py`.

Knows tensors by canonical name. The names of publishers are in `formats/`, the choice of draft tokens in the drafters.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specchat.devices import FLOAT_FORMAT, kind_of
from specchat.engine.cache import KVCache
from specchat.engine.kv_arena import KVArena, arena_rows
from specchat.engine.model import FINAL_NORM, Model
from specchat.errors import ModelError
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import ForwardBatch, HiddenStates, RowBatch
from specchat.forward.cuda_graphs import Capture, CapturedFunction, CudaGraphCapture
from specchat.forward.linear import Linear
from specchat.heads.backbone import HeadBackbone
from specchat.heads.dflash_head import DFlashHead
from specchat.heads.hydra_head import HydraHead
from specchat.heads.spec import DFLASH, DSPARK, HYDRA, MEDUSA, HeadSpec, TargetDimensions, mismatches
from specchat.models.tensor_files import WeightLoader


@dataclass(frozen=True)
class HeadOutput:
    logits: Tensor  # [logit_rows, Vd]
    hidden_states: Tensor  # [logit_rows, D]: input of the next draft step, in place of the target's hidden states


class EagleHead:
    """A head over pairs of hidden state and embedding, with a KV cache of its own.

    Its embeddings may differ from the target's, so callers use `embed`.
    """

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.kind, self.context_window, self.wiring = spec.kind, spec.context_window, spec.wiring
        self.hidden_state_layers = spec.hidden_state_layers_for(len(target.pool.layout.shapes))
        self._backbone = backbone = HeadBackbone(spec, loader, target)
        self.pool, self.draft_to_target_ids = backbone.pool, backbone.draft_to_target_ids
        layer_count = len(self.hidden_state_layers)
        self._per_layer_norms = [backbone.norm_weight(f"fc_norm.{index}") for index in range(layer_count)]
        self._concatenated_norm = backbone.norm_weight("input_norm")
        self._fc = loader.linear("fc") if "fc.weight" in spec.tensors else None
        self._embedding_norm = backbone.norm_weight("embedding_norm")
        self._feature_norm = backbone.norm_weight("feature_norm")
        self._pair_projection = loader.linear("join") if "join.weight" in spec.tensors else None
        self._lm_head = backbone.lm_head
        self.bytes = loader.loaded_bytes
        self.capture: Capture | None = None
        self.graphs = dict[Hashable, CapturedFunction[Any]]()  # of drafters, by what they depend on
        if kind_of(loader.device).has_graphs:
            self.capture = CudaGraphCapture(loader.device)
            tokens = min(2 * self.context_window, target.context_window)
            self.pool.arena = KVArena(self.pool.layout, arena_rows(tokens))

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """The embeddings that this head was trained with. [n] -> [n, D]"""
        return self._backbone.embed(tokens)

    @torch.inference_mode()
    def fuse(self, hidden_states: Tensor) -> Tensor:
        """One state per token from the states of several target layers: EAGLE-3's `fc`. [n, layers * D] -> [n, D]"""
        if self._fc is None:
            return hidden_states
        parts = hidden_states.chunk(len(self.hidden_state_layers), dim=-1)
        rms_norm = self._backbone.rms_norm
        parts = [rms_norm(part, weight) for part, weight in zip(parts, self._per_layer_norms, strict=True)]
        return self._fc(rms_norm(torch.cat(parts, dim=-1), self._concatenated_norm))

    @torch.inference_mode()
    def forward(
        self, hidden_states: Tensor, embeddings: Tensor, batch: RowBatch, cache: KVCache, logit_rows: int | None = None
    ) -> HeadOutput:
        """Run pairs: fused target states or own outputs [N, D], with embeddings [N, D] of the tokens that follow.

        Keys and values of the N rows stay uncommitted. The output has the last `logit_rows` rows, or all: during
        prefill the LM head takes most of the time.
        """
        residual, attention_input = self._fuse_inputs(hidden_states, embeddings)
        states = self._backbone.forward(
            residual, batch, cache, attention_input=attention_input, hidden_state_layers=(self._feedback_layer,)
        )
        first = 0 if logit_rows is None else len(residual) - logit_rows
        return self._output(states, slice(first, None))

    @torch.inference_mode()
    def forward_batch(
        self, hidden_states: Tensor, embeddings: Tensor, batch: ForwardBatch, rows: Tensor | None = None
    ) -> HeadOutput:
        """As `forward`, over rows whose place is on the device already. The output has the rows `rows`, or all."""
        residual, attention_input = self._fuse_inputs(hidden_states, embeddings)
        states = self._backbone.forward_batch(residual, batch, attention_input, (self._feedback_layer,))
        return self._output(states, slice(None) if rows is None else rows)

    @property
    def sliding_windows(self) -> frozenset[int | None]:
        return self._backbone.stack.sliding_windows

    def make_mask(self, allowed: Tensor) -> AttentionMask:
        return self._backbone.make_mask(allowed)

    @property
    def _feedback_layer(self) -> int:
        """The layer whose states are the next inputs."""
        return FINAL_NORM if self.wiring.feeds_back_normed else self._backbone.dimensions.layers

    def _output(self, states: HiddenStates, rows: slice | Tensor) -> HeadOutput:
        assert states.selected is not None, "a pass without the states that it was called for"
        return HeadOutput(self._lm_head(states.final[rows]), states.selected[rows])

    def _fuse_inputs(self, hidden_states: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor | None]:
        """The residual stream [N, D], and the first attention's input where it differs: the pair [N, 2D]."""
        rms_norm = self._backbone.rms_norm
        embedding, feature = rms_norm(embeddings, self._embedding_norm), rms_norm(hidden_states, self._feature_norm)
        pair = torch.cat((feature, embedding) if self.wiring.is_feature_first else (embedding, feature), dim=-1)
        if self._pair_projection is None:
            return feature if self.wiring.residual_is_normed else hidden_states, pair
        return self._pair_projection(pair), None


class MedusaHead:
    """Medusa (arXiv 2401.10774): residual blocks over the final hidden state of token t, one column per token ahead.

    Column k predicts token t+2+k. Medusa-1 has an LM head for every column; later checkpoints use the target's.
    """

    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.tokens_ahead = spec.tokens_ahead
        columns = range(self.tokens_ahead)
        depths = [sum(f"blocks.{column}.{depth}.weight" in spec.tensors for depth in range(9)) for column in columns]
        self._blocks = [
            [loader.linear(f"blocks.{column}.{index}") for index in range(depth)] for column, depth in enumerate(depths)
        ]
        names = [f"heads.{column}" for column in columns]
        self._lm_heads = [loader.linear(name) for name in names] if "heads.0.weight" in spec.tensors else []
        self._target_lm_head, self.bytes = target.compute_logits, loader.loaded_bytes

    @torch.inference_mode()
    def logits(self, hidden_states: Tensor) -> list[Tensor]:
        """Hidden states after the final norm [n, D] -> logits [n, V] of the tokens t+2, t+3, …"""
        columns = [self._residual_blocks(blocks, hidden_states) for blocks in self._blocks]
        if self._lm_heads:
            return [lm_head(rows) for lm_head, rows in zip(self._lm_heads, columns, strict=True)]
        return list(self._target_lm_head(torch.cat(columns)).split(len(hidden_states)))

    def _residual_blocks(self, blocks: list[Linear], rows: Tensor) -> Tensor:
        for block in blocks:
            rows = rows + functional.silu(block(rows))
        return rows


LoadedHead = EagleHead | MedusaHead | HydraHead | DFlashHead


def load_head(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, weights: str = FLOAT_FORMAT
) -> LoadedHead:
    """The network of a head for its target; ModelError when the head does not fit the target.

    `dtype` None: the dtype of the target, whose hidden states, embeddings and LM head it uses. `weights` is the format
    of its linear layers, one of QUANT_FORMATS.
    """
    hidden_size = target.embed(torch.zeros(1, dtype=torch.long, device=device)).shape[-1]
    dimensions = TargetDimensions(hidden_size, len(target.pool.layout.shapes) or None, target.vocab_size)
    if reasons := mismatches(spec, dimensions):
        raise ModelError(f"{spec.source}: this {spec.format} head does not fit the target: {'; '.join(reasons)}")
    loader = WeightLoader(spec.tensors, dtype or target.pool.layout.dtype, device, weights)
    networks = {MEDUSA: MedusaHead, HYDRA: HydraHead, DFLASH: DFlashHead, DSPARK: DFlashHead}
    network = networks.get(spec.kind, EagleHead)
    return network(spec, loader, target)
