"""Networks whose weights are noise, made on the device: what a pass costs depends on shapes, not on weights.

Nothing is written to a disk. Knows names of tensors and shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specchat.bench.gpu.gpu_bench import WEIGHT_STD, BenchSizes, GpuBench
from specchat.bench.gpu.own_kernels import random_int4
from specchat.drafters.eagle.eagle3_format import detect_eagle3
from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.load_head import load_head
from specchat.engine.kv_arena import arena_rows
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda.cuda_graphs import CudaGraphCapture, GraphSettings
from specchat.forward.linear.int4_linear import Int4Weight
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.llama_families import network_config
from specchat.weights.llama_manifest import read_dimensions
from specchat.weights.llama_weights import network_weights
from specchat.weights.tensor_files import TensorFiles, TensorLocation, WeightLoader

SOURCE = Path("noise")
W4A16 = "W4A16"  # beside the formats of `--weights`: 4 bits as in AWQ and GPTQ checkpoints
DRAFT_VOCABULARY = 32000
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class RandomTensors(TensorFiles):
    """Tensors of these shapes that no file holds: norms are ones, tables of tokens zeros, all others noise."""

    bench: GpuBench
    has_4_bits: bool = False

    @classmethod
    def of(cls, bench: GpuBench, shapes: Shapes, *, has_4_bits: bool = False) -> RandomTensors:
        locations = {name: TensorLocation(SOURCE, name, shape) for name, shape in shapes.items()}
        return cls(SOURCE, locations, bench, has_4_bits)

    def renamed(self, names: Mapping[str, str]) -> RandomTensors:
        return replace(self, locations={new: self.locations[old] for new, old in names.items()})

    def read_tensor(self, name: str) -> Tensor:
        shape = self.shape(name)
        if name == "d2t":
            return torch.zeros(shape, dtype=torch.long)
        if len(shape) == 1:
            return torch.ones(shape, dtype=self.bench.dtype, device=self.bench.device)
        return self.bench.noise(*shape, std=WEIGHT_STD)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        return self.bench.noise(last - first, *self.shape(name)[1:], std=WEIGHT_STD)

    def has_int4_weight(self, name: str) -> bool:
        return self.has_4_bits and ".layers." in name

    def int4_weight(self, name: str) -> Int4Weight | None:
        outputs, inputs = self.shape(name)
        return random_int4(self.bench, (outputs, inputs)) if self.has_int4_weight(name) else None


def random_llama(bench: GpuBench, sizes: BenchSizes, weights: str, context_window: int) -> LlamaModel:
    """A network of these sizes with graphs, not yet captured. `weights` is a weight format, or W4A16."""
    config = network_config(llama_config(sizes))
    files = RandomTensors.of(bench, llama_shapes(sizes), has_4_bits=weights == W4A16)
    loader = WeightLoader(files, bench.dtype, bench.device, "float" if weights == W4A16 else weights)
    dimensions = read_dimensions(config, SOURCE)
    loaded = network_weights(loader, config, dimensions, bench.device, context_window)
    graphs = GraphSettings(CudaGraphCapture(bench.device), arena_rows(context_window))
    return LlamaModel(dimensions, loaded, context_window, BatchLimits(prefill_chunk=512), graphs)


def random_eagle3(bench: GpuBench, sizes: BenchSizes, target: LlamaModel) -> DraftHead:
    """An EAGLE-3 head for such a network, with a draft vocabulary as published heads have."""
    config = {**llama_config(sizes), "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}}
    shapes = eagle3_shapes(sizes)
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": shapes["d2t"][0]}
    spec = detect_eagle3(HeadCheckpoint(RandomTensors.of(bench, shapes), config))
    assert spec is not None, "these tensors are those of EAGLE-3"
    return load_head(spec, target, None, bench.device)


def llama_config(sizes: BenchSizes) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": sizes.hidden, "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_size, "vocab_size": sizes.vocabulary, "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip


def llama_shapes(sizes: BenchSizes) -> Shapes:
    layers = [_layer_shapes(f"model.layers.{layer}", sizes) for layer in range(sizes.layers)]
    shapes = {name: shape for layer in layers for name, shape in layer.items()}
    shapes |= {f"model.layers.{layer}.input_layernorm.weight": (sizes.hidden,) for layer in range(sizes.layers)}
    matrix = sizes.vocabulary, sizes.hidden
    return shapes | {
        "model.embed_tokens.weight": matrix, "lm_head.weight": matrix, "model.norm.weight": (sizes.hidden,),
    }  # fmt: skip


def eagle3_shapes(sizes: BenchSizes) -> Shapes:
    tokens, hidden = min(DRAFT_VOCABULARY, sizes.vocabulary), sizes.hidden
    return _layer_shapes("midlayer", sizes, 2 * hidden) | {
        "midlayer.input_layernorm.weight": (hidden,), "midlayer.hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,), "fc.weight": (hidden, 3 * hidden), "lm_head.weight": (tokens, hidden),
        "d2t": (tokens,),
    }  # fmt: skip


def _layer_shapes(at: str, sizes: BenchSizes, inputs: int = 0) -> dict[str, tuple[int, ...]]:
    hidden, inner, width = sizes.hidden, sizes.inner, sizes.heads * sizes.head_size
    inputs, kv_width = inputs or hidden, sizes.kv_heads * sizes.head_size
    shapes = {
        "self_attn.q_proj": (width, inputs), "self_attn.k_proj": (kv_width, inputs),
        "self_attn.v_proj": (kv_width, inputs), "self_attn.o_proj": (hidden, width),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
        "post_attention_layernorm": (hidden,),
    }  # fmt: skip
    return {f"{at}.{name}.weight": shape for name, shape in shapes.items()}


def float_bytes(sizes: BenchSizes) -> int:
    """The bytes of such a network in floats of 16 bits."""
    return 2 * sum(map(prod, llama_shapes(sizes).values()))
