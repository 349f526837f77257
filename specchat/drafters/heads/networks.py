"""Heads that draft from the hidden states of the target.

An `EagleHead` reads pairs (`pair_head.py`) and its own output, a `MedusaHead` the last hidden state alone. P-EAGLE is
in `peagle_head.py`, block heads are in `dflash_head.py`, Hydra in `hydra_head.py`, assistants in `assistant_head.py`.

Knows tensors by canonical name. The names of publishers are in `formats/`, the choice of draft tokens in the drafters.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specchat.devices import FLOAT_FORMAT, kind_of
from specchat.drafters.eagle.head import HeadOutput, PairHead
from specchat.drafters.heads.assistant_head import AssistantHead
from specchat.drafters.heads.dflash_head import DFlashHead
from specchat.drafters.heads.hydra_head import HydraHead
from specchat.drafters.heads.peagle_head import PEagleHead
from specchat.drafters.heads.spec import (
    ASSISTANT,
    DFLASH,
    DFLASH2,
    DSPARK,
    HYDRA,
    MEDUSA,
    PEAGLE,
    HeadSpec,
    TargetDimensions,
    mismatches,
)
from specchat.engine.kv_arena import KVArena, arena_rows
from specchat.engine.model import FINAL_NORM, Model
from specchat.errors import ModelError
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import ForwardBatch
from specchat.forward.cuda_graphs import Capture, CapturedFunction, CudaGraphCapture
from specchat.forward.linear import Linear
from specchat.weights.tensor_files import WeightLoader


class EagleHead(PairHead):
    """EAGLE and MTP: a head that continues its own output, on a GPU in CUDA graphs over an arena."""

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        super().__init__(spec, loader, target)
        self.capture: Capture | None = None
        self.graphs = dict[Hashable, CapturedFunction[Any]]()  # of drafters, by what they depend on
        if kind_of(loader.device).has_graphs:
            self.capture = CudaGraphCapture(loader.device)
            tokens = min(2 * self.context_window, target.context_window)
            self.pool.arena = KVArena(self.pool.layout, arena_rows(tokens))

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


LoadedHead = EagleHead | PEagleHead | MedusaHead | HydraHead | DFlashHead | AssistantHead


def load_head(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, weights: str = FLOAT_FORMAT
) -> LoadedHead:
    """The network of a head for its target; ModelError when the head does not fit the target.

    `dtype` None: the dtype of the target, whose hidden states, embeddings and LM head it uses. `weights` is the format
    of its linear layers, one of QUANT_FORMATS.
    """
    hidden_size = target.embed(torch.zeros(1, dtype=torch.long, device=device)).shape[-1]
    dimensions = TargetDimensions(hidden_size, target.layer_count or None, target.vocab_size)
    if reasons := mismatches(spec, dimensions):
        raise ModelError(f"{spec.source}: this {spec.format} head does not fit the target: {'; '.join(reasons)}")
    loader = WeightLoader(spec.tensors, dtype or target.pool.layout.dtype, device, weights)
    networks = {MEDUSA: MedusaHead, HYDRA: HydraHead, PEAGLE: PEagleHead, ASSISTANT: AssistantHead}
    networks |= dict.fromkeys((DFLASH, DFLASH2, DSPARK), DFlashHead)
    network = networks.get(spec.kind, EagleHead)
    return network(spec, loader, target)
