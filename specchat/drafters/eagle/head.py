"""Heads over pairs: (hidden state of token t, embedding of token t+1) predict token t+2.

EAGLE and MTP are such heads. Which tensors a head has, and the wiring in its
`HeadSpec`, tell them apart. Knows no drafting.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from specchat.devices import kind_of
from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG, TreeConfig
from specchat.drafters.eagle.graph import GraphTrees
from specchat.drafters.eagle.native_tree import NativeTrees, PairNetwork
from specchat.drafters.heads.backbone import HeadBackbone
from specchat.drafters.heads.draft_head import TESTED_DEPTH, CachingHead, TargetSample
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache import KVCache
from specchat.engine.cache_sizes import SCRATCH_ROWS, arena_rows
from specchat.engine.kv_arena import KVArena
from specchat.engine.model import FINAL_NORM, Model
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import ForwardBatch, HiddenStates, RowBatch
from specchat.forward.cuda.cuda_graphs import Capture, CapturedFunction, CudaGraphCapture
from specchat.forward.linear.linear import Linear
from specchat.forward.native.native_mixture import linear_layer
from specchat.forward.native.native_stack import NativeStack
from specchat.weights.tensor_files import WeightLoader

MOST_COPIED_VALUES = 2**27  # of input embeddings that are still in a file


@dataclass(frozen=True)
class HeadOutput:
    logits: Tensor  # [logit_rows, Vd]
    hidden_states: Tensor  # [logit_rows, D]: input of the next draft step, in place of the target's hidden states


class PairHead(CachingHead):
    """A head over pairs, with a KV cache of its own.

    Its embeddings may differ from the target's, so callers use `embed`. Heads of plugins can have other layers.
    """

    backbone: type[HeadBackbone] = HeadBackbone

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.kind, self.context_window, self.wiring = spec.kind, spec.context_window, spec.wiring
        self.hidden_state_layers = spec.hidden_state_layers_for(target.layer_count)
        self._backbone = backbone = self.backbone(spec, loader, target)
        self.pool, self.draft_to_target_ids = backbone.pool, backbone.draft_to_target_ids
        states = len(self.hidden_state_layers)
        self._per_layer_norms = [backbone.norm_weight(f"fc_norm.{index}") for index in range(states)]
        self._concatenated_norm = backbone.norm_weight("input_norm")
        self._fc = loader.linear("fc") if "fc.weight" in spec.tensors else None
        self._embedding_norm = backbone.norm_weight("embedding_norm")
        self._feature_norm = backbone.norm_weight("feature_norm")
        self._pair_projection = loader.linear("join") if "join.weight" in spec.tensors else None
        self._lm_head = backbone.lm_head
        self.bytes = loader.loaded_bytes

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """The embeddings that this head was trained with. [n] -> [n, D]"""
        return self._backbone.embed(tokens)

    @torch.inference_mode()
    def fuse(self, hidden_states: Tensor) -> Tensor:
        """One state per token from the states of several target layers: EAGLE-3's `fc`. [n, layers * D] -> [n, D]"""
        if self._fc is None:
            return hidden_states
        rms_norm = self._backbone.rms_norm
        if any(weight is not None for weight in self._per_layer_norms):
            parts = hidden_states.chunk(len(self.hidden_state_layers), dim=-1)
            parts = [rms_norm(part, weight) for part, weight in zip(parts, self._per_layer_norms, strict=True)]
            hidden_states = torch.cat(parts, dim=-1)
        return self._fc(rms_norm(hidden_states, self._concatenated_norm))

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
    def predictions(self, sample: TargetSample) -> list[Tensor]:
        """Chains from all positions at once: each sees the true pairs up to its position, then its own."""
        count, predicted = len(sample.probabilities), list[Tensor]()
        hidden_states, cache = self.fuse(sample.hidden_states), self.pool.open()
        own, mask = torch.eye(count, dtype=torch.bool), torch.ones(count, count, dtype=torch.bool).tril()
        with self.pool.acquire_slot(cache, TESTED_DEPTH * count + SCRATCH_ROWS):
            for depth in range(self.tested_depth):
                tokens = sample.tokens_after(depth)
                states, embeddings = self.pairs_at(depth, hidden_states, tokens)
                batch = RowBatch(tokens, torch.arange(count) + depth, mask, cache.length)
                output = self.forward(states, embeddings, batch, cache)
                cache.commit(list(range(count)))
                best = output.logits.argmax(-1)
                predicted.append(best if self.draft_to_target_ids is None else self.draft_to_target_ids[best])
                hidden_states, mask = output.hidden_states, torch.cat((mask, own), dim=-1)
        self.pool.close(cache)
        return predicted

    @property
    def tested_depth(self) -> int:
        """Draft tokens of a chain in the self-test."""
        return TESTED_DEPTH

    def pairs_at(self, _depth: int, hidden_states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The states and embeddings that it reads at a depth of a chain, from its output at the depth before."""
        return hidden_states, self.embed(tokens)

    @cached_property
    def network(self) -> PairNetwork | None:
        """What native kernels draft trees with; None where an operation of this head is no native kernel."""
        backbone, token_ids = self._backbone, self.draft_to_target_ids
        table, embeds_columns = backbone.embedding_table, False
        if not isinstance(backbone.stack, NativeStack):
            return None
        if table is None and (tokens := self._tokens_of_columns()) is not None:
            table, embeds_columns = self.embed(tokens), True
        if table is None or table.dtype != backbone.angles.cos.dtype:
            return None
        network = PairNetwork(
            backbone.stack, backbone.angles, table, embeds_columns, self._feature_norm, self._embedding_norm,
            self._native_fusion, self._pair_projection, self._lm_head, token_ids, self.context_window,
            self._feedback_layer, self.wiring.is_feature_first, self.wiring.residual_is_normed,
        )  # fmt: skip
        return network if NativeTrees.is_possible(network) else None

    @property
    def _native_fusion(self) -> Linear | None:
        """What the kernel fuses the states of several layers with; None where `fuse` must do it."""
        is_alone = self._concatenated_norm is None and all(weight is None for weight in self._per_layer_norms)
        is_native = self._fc is not None and linear_layer(self._fc, self._backbone.angles.cos.dtype) is not None
        return self._fc if is_alone and is_native else None

    def _tokens_of_columns(self) -> Tensor | None:
        """The tokens of the columns of the logits; None where their embeddings are too many to be copied."""
        if self.draft_to_target_ids is not None:
            return self.draft_to_target_ids
        lm_head = linear_layer(self._lm_head, self._backbone.angles.cos.dtype)
        if lm_head is None or lm_head.outputs * lm_head.inputs > MOST_COPIED_VALUES:
            return None
        return torch.arange(lm_head.outputs)

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


class EagleHead(PairHead):
    """EAGLE and MTP: a head that continues its own output, on a GPU in CUDA graphs over an arena."""

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        super().__init__(spec, loader, target)
        self.capture: Capture | None = None
        self.graphs = dict[TreeConfig, CapturedFunction[Tensor]]()  # of drafters
        if kind_of(loader.device).has_graphs:
            self.capture = CudaGraphCapture(loader.device)
            tokens = min(2 * self.context_window, target.context_window)
            self.pool.arena = KVArena(self.pool.layout, arena_rows(tokens))

    def capture_graphs(self, target: Model) -> None:
        config = TreeConfig() if target.supports_trees else CHAIN_CONFIG
        if GraphTrees.is_possible(self, config):
            GraphTrees(self, config).capture(target)

    @torch.inference_mode()
    def forward_batch(
        self, hidden_states: Tensor, embeddings: Tensor, batch: ForwardBatch, rows: Tensor | None = None
    ) -> HeadOutput:
        """As `forward`, over rows whose place is on the device already. The output has the rows `rows`, or all."""
        residual, attention_input = self._fuse_inputs(hidden_states, embeddings)
        states = self._backbone.forward_batch(residual, batch, attention_input, (self._feedback_layer,))
        return self._output(states, slice(None) if rows is None else rows)

    @property
    def reads_cache_rows(self) -> bool:
        return self._backbone.reads_cache_rows

    @property
    def sliding_windows(self) -> frozenset[int | None]:
        return self._backbone.stack.sliding_windows

    def make_mask(self, allowed: Tensor) -> AttentionMask:
        return self._backbone.make_mask(allowed)
