"""What heads with decoder layers share: embeddings, layers over a KV cache of their own, and the LM head.

The layers are those of `forward/llama/decoder_layer.py`; a head may have gated attention or a mixture of experts in
them, and heads of plugins other attention. The inputs of the layers and the use of their outputs differ from head to
head and are not here.
"""

import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.model import Model
from specchat.forward.attention import AttentionMask, build_attention_mask
from specchat.forward.batch import ForwardBatch, ForwardDepth, HiddenStates, RowBatch
from specchat.forward.fused_ops import AttentionDimensions, TorchOps, select_fused_ops
from specchat.forward.llama.decoder_layer import (
    Attention,
    AttentionKind,
    AttentionModule,
    DecoderLayer,
    GatedMlp,
    RopeAngles,
)
from specchat.forward.llama.moe import MixtureOfExperts
from specchat.forward.native.native_stack import decoder_stack
from specchat.weights.llama_families import ExpertNames
from specchat.weights.moe_weights import load_moe
from specchat.weights.tensor_files import WeightLoader

SHARED_EXPERTS = ("mlp.shared_experts", "mlp.shared_expert")  # of DeepSeek and GLM; of Qwen


class HeadBackbone:
    """The network of one head between its inputs and its logits, and the pool of its KV caches.

    Embeddings and LM head are the target's, unless the head has its own.
    """

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.dimensions, self.spec, self.loader = spec.dimensions, spec, loader
        dtype = target.pool.layout.dtype
        self._like = torch.empty(0, dtype=loader.dtype or dtype, device=loader.device)
        self.pool = KVPool(KVLayout((spec.dimensions.kv_shape,) * spec.dimensions.layers, dtype, loader.device))
        sizes = self.dimensions
        dimensions = AttentionDimensions(sizes.heads, sizes.kv_heads, sizes.head_size, sizes.epsilon)
        # native kernels write to the cache, so the cache must have the dtype of the weights
        ops = select_fused_ops(dimensions, self._like) if self._like.dtype == dtype else TorchOps(dimensions)
        layers = [self.load_layer(index) for index in range(sizes.layers)]
        # of all positions of a text, and of the draft tokens after it
        positions = torch.arange(target.context_window + SCRATCH_ROWS, device=loader.device)
        self.angles = RopeAngles.of(spec.rope, positions, sizes.rope_size, self._like)
        self.stack = decoder_stack(layers, self.norm_weight("norm"), ops, [AttentionKind(ops, self.angles.at)])
        self._embeddings, self._target = loader.optional("embed_tokens.weight"), target
        self.lm_head = loader.linear("lm_head") if "lm_head.weight" in spec.tensors else target.lm_head
        self.draft_to_target_ids = spec.draft_to_target_ids().to(loader.device) if "d2t" in spec.tensors else None

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings. [n] -> [n, D]"""
        return (
            self._target.embed(tokens) if self._embeddings is None else functional.embedding(tokens, self._embeddings)
        )

    @property
    def embedding_table(self) -> Tensor | None:
        """The input embeddings [V, D]; None where they are not a tensor as it is."""
        return self._target.embedding_table if self._embeddings is None else self._embeddings

    def forward(
        self,
        hidden_states: Tensor,
        batch: RowBatch,
        cache: KVCache,
        *,
        attention_input: Tensor | None = None,
        hidden_state_layers: tuple[int, ...] = (),
    ) -> HiddenStates:
        """Run all layers and the final norm. The new rows of the cache stay uncommitted. [N, D]

        `attention_input` replaces the input of the first attention.
        """
        masks = {window: self.attention_mask(batch, window) for window in self.stack.sliding_windows}
        device_batch = batch.to_device(cache, masks, self._like.device)
        return self.forward_batch(hidden_states, device_batch, attention_input, hidden_state_layers)

    def forward_batch(
        self,
        hidden_states: Tensor,
        batch: ForwardBatch,
        attention_input: Tensor | None,
        hidden_state_layers: tuple[int, ...],
    ) -> HiddenStates:
        """The same, over rows whose place is on the device already."""
        depth = ForwardDepth(self.dimensions.layers, hidden_state_layers)
        return self.stack.forward(hidden_states, batch, depth, attention_input)

    def make_mask(self, allowed: Tensor) -> AttentionMask:
        """The mask of the rows that each row sees, on the device. bool [N, kv_length]"""
        return AttentionMask(allowed, self.dimensions.heads // self.dimensions.kv_heads, self._like)

    def attention_mask(self, batch: RowBatch, window: int | None) -> AttentionMask | None:
        """The mask of a batch; None when every row sees everything."""
        return build_attention_mask(batch, window, self.dimensions.heads // self.dimensions.kv_heads, self._like)

    @property
    def reads_cache_rows(self) -> bool:
        """Whether kernels find the rows of the cache by numbers, so that no mask is needed."""
        is_whole = self.dimensions.rope_size == self.dimensions.head_size
        is_plain = all(isinstance(layer.self_attn, Attention) for layer in self.stack.layers)
        return self.stack.ops.reads_cache_rows and is_whole and is_plain

    def rms_norm(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """RMS norm over the last dimension; without a weight, the rows unchanged."""
        return rows if weight is None else self.stack.ops.rms_norm(rows, weight)

    def norm_weight(self, name: str) -> Tensor | None:
        """The weight of a norm; some families store weight - 1."""
        weight = self.loader.optional(f"{name}.weight")
        return weight + 1.0 if weight is not None and self.spec.wiring.norms_add_one else weight

    def load_layer(self, index: int) -> DecoderLayer:
        """One layer; a subclass may put more into it."""
        prefix, windows = f"layers.{index}", self.dimensions.sliding_windows
        post_attention_layernorm = self.norm_weight(f"{prefix}.post_attention_layernorm")
        assert post_attention_layernorm is not None, "inspection accepted a layer without a norm before its MLP"
        return DecoderLayer(
            input_layernorm=self.norm_weight(f"{prefix}.input_layernorm"),
            self_attn=self.load_attention(f"{prefix}.self_attn"),
            post_attention_layernorm=post_attention_layernorm,
            mlp=self.load_mlp(prefix),
            sliding_window=windows[index] if windows else None,
        )

    def load_mlp(self, prefix: str) -> GatedMlp | MixtureOfExperts:
        if self.spec.routing is None:
            return GatedMlp.load(self.loader.linear, f"{prefix}.mlp")
        shared = (name for name in SHARED_EXPERTS if f"{prefix}.{name}.up_proj.weight" in self.loader.files)
        names = ExpertNames(shared=next(shared, None))
        return load_moe(self.loader, prefix, names, self.spec.routing, torch.float32)  # less would create ties

    def load_attention(self, prefix: str) -> AttentionModule:
        sizes, loader, names = self.dimensions, self.loader, [f"{part}_proj" for part in "qkv"]
        norms = self.norm_weight(f"{prefix}.q_norm"), self.norm_weight(f"{prefix}.k_norm")
        o_proj = loader.linear(f"{prefix}.o_proj")
        qkv_proj = loader.linear(*(f"{prefix}.{name}" for name in names))
        return Attention(qkv_proj, *norms, o_proj, has_output_gate=sizes.has_output_gate)
