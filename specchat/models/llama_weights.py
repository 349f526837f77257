"""Loads safetensors of the dense Llama family into `forward.llama`; other families are left to transformers.

Knows names of tensors and keys of config.json. Does not import transformers, which saves seconds at every start.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from specchat.devices import GGUF_FORMAT, kind_of
from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.kv_arena import arena_rows
from specchat.engine.model import limit_context_window
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda_graphs import Capture, CudaGraphCapture, GraphSettings
from specchat.forward.decoder_layer import Attention, DecoderLayer, SwiGluMlp
from specchat.forward.llama import Dimensions, LlamaModel, Weights
from specchat.forward.rope import Rope, cos_sin
from specchat.models.fp8_checkpoints import Fp8TensorFiles, block_shape_from_config, is_supported_fp8
from specchat.models.gguf_blocks import GgufBlocks
from specchat.models.int4_checkpoints import Int4TensorFiles, int4_scheme, is_int4
from specchat.models.llama_families import LLAMA_LIKE_FAMILIES, sliding_window
from specchat.models.llama_manifest import check_tensors, read_dimensions
from specchat.models.tensor_files import EMBEDDING, WeightLoader

SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")
DEFAULT_ARENA_TOKENS = 8192  # without a limit; a context window may have a million tokens
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def is_llama_like(config: dict[str, Any]) -> bool:
    """Whether `forward.llama` supports the family, activation, RoPE and weight format of this config."""
    return (
        config.get("model_type") in LLAMA_LIKE_FAMILIES
        and config.get("hidden_act", "silu") == "silu"
        and Rope.from_config(config).rope_type in SUPPORTED_ROPE_TYPES
        and Rope.from_config(config).partial_rotary_factor == 1.0
        and _can_read_weights(config.get("quantization_config"))
        and not config.get("mlp_bias")
    )


def _can_read_weights(quantization_config: object) -> bool:
    """Whether the weights are floats, or in a format that has a reader; the reader refuses what it cannot read."""
    return not quantization_config or is_supported_fp8(quantization_config) or is_int4(quantization_config)


def load_llama(
    folder: Path,
    dtype: torch.dtype | None,
    device: torch.device,
    context_window: int | None,
    limits: BatchLimits,
    capture: Capture | None = None,
    quant_format: str = "float",
    embedding_device: torch.device | None = None,
    *,
    has_int8_kv: bool = False,
) -> LlamaModel:
    """Load the model of a folder. `dtype` None keeps the stored dtype; `quant_format` is one of QUANT_FORMATS.

    FP8 and 4-bit checkpoints are dequantized to `dtype` or the config's dtype, some rows at a time; the format "float"
    keeps 4 bits on a GPU that can multiply them. Where a device has CUDA graphs, they are captured, over a KV arena for
    one text of `context_window` tokens (DEFAULT_ARENA_TOKENS without one).
    """
    kind, config = kind_of(device), json.loads((folder / "config.json").read_text())
    sizes = read_dimensions(config, folder)
    arena_tokens = limit_context_window(context_window or DEFAULT_ARENA_TOKENS, sizes.max_position_embeddings)
    context_window = limit_context_window(context_window, sizes.max_position_embeddings)
    files = tensor_files(folder, config)
    check_tensors(files, sizes)
    if files.has_scaled_weights:
        dtype = dtype or config_dtype(config)
        files = replace(files, dtype=dtype)
    blocks = GgufBlocks.from_folder(folder) if quant_format == GGUF_FORMAT and not kind.is_gpu else None
    loader = WeightLoader(files, dtype, device, quant_format, blocks)
    if kind.has_graphs:
        capture = capture or CudaGraphCapture(device)
    weights = _weights(loader, config, sizes, embedding_device or device, context_window)
    graphs = GraphSettings(capture, arena_rows(arena_tokens)) if capture is not None else None
    return LlamaModel(sizes, weights, context_window, limits, graphs, has_int8_kv=has_int8_kv)


def tensor_files(folder: Path, config: dict[str, Any]) -> Fp8TensorFiles | Int4TensorFiles:
    """The tensors of a folder; FP8 and 4-bit weights are dequantized when they are read."""
    paths, quantization = sorted(folder.glob("*.safetensors")), config.get("quantization_config") or {}
    if is_int4(quantization):
        return replace(Int4TensorFiles.from_files(folder, paths), scheme=int4_scheme(quantization, folder))
    return replace(Fp8TensorFiles.from_files(folder, paths), block_shape=block_shape_from_config(quantization))


def config_dtype(config: dict[str, Any]) -> torch.dtype:
    """The dtype in the config; bfloat16 when it is missing or has 8 bits."""
    name = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    return DTYPES.get(name, torch.bfloat16)


def _weights(
    loader: WeightLoader,
    config: dict[str, Any],
    dimensions: Dimensions,
    embedding_device: torch.device,
    context_window: int,
) -> Weights:
    """Load the largest weights first: quantizing them needs extra memory, and most is free at the start."""
    embedding = loader.tensor(EMBEDDING, embedding_device)
    is_tied = config.get("tie_word_embeddings", False) or "lm_head.weight" not in loader.files
    head = loader.tied_lm_head(embedding) if is_tied else loader.linear("lm_head")
    indices = range(dimensions.layers)
    layers = [_layer(loader, f"model.layers.{index}", sliding_window(config, index)) for index in indices]
    norm, rope = loader.tensor("model.norm.weight"), Rope.from_config(config)
    positions = torch.arange(context_window + SCRATCH_ROWS)  # a config may declare millions
    cosine, sine = cos_sin(positions, rope.inv_freq(dimensions.head_size), rope.attention_factor)
    return Weights(embedding, layers, norm, head, (cosine.to(norm), sine.to(norm)), loader.loaded_bytes)


def _layer(loader: WeightLoader, prefix: str, sliding_window: int | None) -> DecoderLayer:
    self_attn = Attention(
        qkv_proj=loader.linear(*(f"{prefix}.self_attn.{part}_proj" for part in "qkv")),
        q_norm=loader.optional(f"{prefix}.self_attn.q_norm.weight"),
        k_norm=loader.optional(f"{prefix}.self_attn.k_norm.weight"),
        o_proj=loader.linear(f"{prefix}.self_attn.o_proj"),
    )
    return DecoderLayer(
        input_layernorm=loader.tensor(f"{prefix}.input_layernorm.weight"),
        self_attn=self_attn,
        post_attention_layernorm=loader.tensor(f"{prefix}.post_attention_layernorm.weight"),
        mlp=SwiGluMlp.load(loader.linear, f"{prefix}.mlp"),
        sliding_window=sliding_window,
    )
