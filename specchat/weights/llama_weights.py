"""Loads safetensors of the families in `llama_families` into `forward.llama.llama`; others are left to transformers.

Knows names of tensors and keys of config.json. Does not import transformers, which saves seconds at every start.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch

from specchat.devices import GGUF_FORMAT, kind_of, launching_on
from specchat.engine.cache import Places
from specchat.engine.cache_sizes import SCRATCH_ROWS, arena_rows
from specchat.engine.model import limit_context_window
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda.cuda_graphs import Capture, CudaGraphCapture, GraphSettings
from specchat.forward.cuda.kernel_trial import triton_module
from specchat.forward.linear.linear import float_linear
from specchat.forward.llama.decoder_layer import (
    Attention,
    DecoderLayer,
    GatedMlp,
    PerLayerGate,
    PerLayerInput,
    RopeAngles,
    WideNorms,
)
from specchat.forward.llama.gated_delta_net import DeltaNetSizes, GatedDeltaNet
from specchat.forward.llama.hybrid import HybridModel
from specchat.forward.llama.llama import Dimensions, LlamaModel, Weights
from specchat.forward.llama.moe import MixtureOfExperts, Routing
from specchat.forward.llama.rope import PROPORTIONAL, Rope
from specchat.forward.llama.variations import SILU, LayerShape, SwiGluClamp
from specchat.forward.recurrences import DeltaGates
from specchat.weights.fp8_checkpoints import Fp8TensorFiles, block_shape_from_config, is_supported_fp8
from specchat.weights.gguf.gguf_tensors import GgufTensorFiles
from specchat.weights.int4_checkpoints import Int4TensorFiles, int4_scheme, is_int4
from specchat.weights.kept_weights import KeptWeights
from specchat.weights.llama_families import (
    COMPOSITE_TYPES,
    FAMILIES,
    HYBRID_FAMILIES,
    LAYER_SCALAR,
    PER_LAYER,
    Family,
    LayerNames,
    has_experts,
    network_config,
    published_names,
    rope_config,
    sliding_window,
)
from specchat.weights.llama_manifest import LARGEST_SIZES, check_tensors, read_dimensions
from specchat.weights.moe_weights import load_moe
from specchat.weights.mxfp4_checkpoints import Mxfp4TensorFiles, is_mxfp4
from specchat.weights.tensor_files import WeightLoader

DEFAULT_ARENA_TOKENS = 8192  # without a limit; a context window may have a million tokens
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def is_llama_like(config: dict[str, Any]) -> bool:
    """Whether `forward.llama.llama` supports the family, activation, RoPE and weight format of this config."""
    network = network_config(config)
    family = FAMILIES.get(str(network.get("model_type")))
    return (
        family is not None
        and network.get(family.activation_key, family.activation) == family.activation
        and all(rope is None or _is_supported_rope(rope, family) for rope in _ropes(network, _known_layers(network)))
        and _can_read_weights(network.get("quantization_config"), family, is_composite=_is_composite(config))
        and not network.get("mlp_bias")
        and network.get("clip_qkv") is None
        and network.get("use_bidirectional_attention") in (None, False, "vision")  # images are not read
        and not network.get("enable_moe_block")
    )


def can_compute(config: dict[str, Any], folder: Path, dtype: torch.dtype | None, device: torch.device) -> bool:
    """Whether `load_llama` loads this folder to a device: recurrent layers need kernels of ours on a GPU."""
    network = network_config(config)
    if not is_llama_like(config) or network["model_type"] not in HYBRID_FAMILIES or not kind_of(device).is_gpu:
        return is_llama_like(config)
    kernels, sizes = triton_module("device_states", device), read_dimensions(network, folder).delta_net
    return kernels is not None and sizes is not None and kernels.can_step(sizes, dtype or config_dtype(network), device)


def _is_composite(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") in COMPOSITE_TYPES


def _can_read_weights(quantization_config: object, family: Family, *, is_composite: bool) -> bool:
    """Whether the weights are floats, or in a format that has a reader; the reader refuses what it cannot read."""
    if not quantization_config or is_supported_fp8(quantization_config):
        return True
    if is_mxfp4(quantization_config):
        return family.experts is not None and family.experts.has_gpt_oss_stacks
    return is_int4(quantization_config) and not is_composite  # its names of layers are those of the whole network


def _known_layers(network: Mapping[str, Any]) -> int:
    """The layers that a config describes, before anything in it was checked."""
    count, kinds = network.get("num_hidden_layers"), network.get("layer_types")
    most = min(LARGEST_SIZES["num_hidden_layers"], len(kinds) if kinds else LARGEST_SIZES["num_hidden_layers"])
    return min(count, most) if isinstance(count, int) else 1


def _ropes(network: Mapping[str, Any], layers: int) -> list[Rope | None]:
    """The rotary embeddings of the first layers; None for a layer without."""
    configs = (rope_config(network, layer) for layer in range(layers))
    return [None if config is None else Rope.from_config(config) for config in configs]


def _is_supported_rope(rope: Rope, family: Family) -> bool:
    # elsewhere transformers may ignore the share
    has_share = family.rotary_share < 1.0 or rope.rope_type == PROPORTIONAL
    is_whole = rope.partial_rotary_factor == 1.0 or has_share
    has_length = rope.rope_type != "yarn" or {"factor", "original_max_position_embeddings"} <= rope.scaling.keys()
    return rope.is_supported and is_whole and has_length


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
    kept: KeptWeights | None = None,
    cpu_layers: int = 0,
    gpu_layers: Sequence[int] = (),
) -> LlamaModel:
    """Load the model of a folder. `dtype` None keeps the stored dtype; `quant_format` is one of QUANT_FORMATS.

    Beside a GPU, the first `cpu_layers` layers are in main memory; GPUs 1, 2, ... have so many of the next ones each.

    FP8 and 4-bit checkpoints are dequantized to `dtype` or the config's dtype, some rows at a time; the format "float"
    keeps 4 bits on a GPU that can multiply them. Where a device has CUDA graphs, they are captured, over a KV arena for
    one text of `context_window` tokens (DEFAULT_ARENA_TOKENS without one).
    """
    kind, published = kind_of(device), json.loads((folder / "config.json").read_text())
    config = network_config(published)
    files = tensor_files(folder, published)
    sizes = read_dimensions(config, files.source)
    arena_tokens = limit_context_window(context_window or DEFAULT_ARENA_TOKENS, sizes.max_position_embeddings)
    context_window = limit_context_window(context_window, sizes.max_position_embeddings)
    check_tensors(files, sizes, config)
    others = (torch.device("cpu"), *(torch.device(kind.name, 1 + index) for index in range(len(gpu_layers))))
    counts = zip(others, (cpu_layers, *gpu_layers), strict=True)
    places = tuple((other, count) for other, count in counts if count and kind.is_gpu)
    if places and not _can_split(sizes, placed := sum(count for _other, count in places)):
        raise ModelError(f"{files.source}: its first {placed} layers cannot be on another device; use --place none")
    if not isinstance(files, GgufTensorFiles) and files.has_scaled_weights:
        dtype = dtype or config_dtype(config)
        files = replace(files, dtype=dtype)
    multiplies_blocks = quant_format == GGUF_FORMAT and (kind.has_kernels or not kind.is_gpu)
    if multiplies_blocks and not isinstance(files, GgufTensorFiles):
        raise ModelError(f"{folder}: was not made from a GGUF file; --weights gguf needs one, use --weights float")
    loader = WeightLoader(files, dtype, device, quant_format, multiplies_blocks, kept)
    weights = network_weights(loader, config, sizes, embedding_device or device, context_window, places)
    if not weights.are_capturable:
        capture = None
    elif kind.has_graphs:
        capture = capture or CudaGraphCapture(device)
    graphs = GraphSettings(capture, arena_rows(arena_tokens)) if capture is not None else None
    return own_model(sizes, weights, context_window, limits, graphs, has_int8_kv=has_int8_kv)


def own_model(
    sizes: Dimensions,
    weights: Weights,
    context_window: int,
    limits: BatchLimits,
    graphs: GraphSettings | None,
    *,
    has_int8_kv: bool = False,
) -> LlamaModel:
    """The model of these weights: of its kind of layers, on their device."""
    if sizes.delta_net is None:
        return LlamaModel(sizes, weights, context_window, limits, graphs, has_int8_kv=has_int8_kv)
    if not kind_of(weights.norm.device).is_gpu:
        return HybridModel(sizes, weights, context_window, limits, has_int8_kv=has_int8_kv)
    from specchat.forward.llama.device_hybrid import DeviceHybridModel  # needs Triton

    return DeviceHybridModel(sizes, weights, context_window, limits, graphs)


def _can_split(sizes: Dimensions, count: int) -> bool:
    """Whether layers on the GPU read nothing but hidden states of the first ones, and some are left for it."""
    shares_rows = any(each.kv_source is not None for each in sizes.layer_shapes)
    return count < sizes.layers and not (sizes.delta_net or sizes.per_layer_input_size or shares_rows)


def tensor_files(
    folder: Path, config: dict[str, Any]
) -> Fp8TensorFiles | Int4TensorFiles | Mxfp4TensorFiles | GgufTensorFiles:
    """The tensors of a folder; FP8 and 4-bit weights, and blocks of a GGUF file, are dequantized when they are read."""
    if (from_gguf := GgufTensorFiles.from_folder(folder)) is not None:
        return from_gguf
    paths, quantization = sorted(folder.glob("*.safetensors")), network_config(config).get("quantization_config") or {}
    if is_int4(quantization):
        return replace(Int4TensorFiles.from_files(folder, paths), scheme=int4_scheme(quantization, folder))
    if is_mxfp4(quantization):
        return Mxfp4TensorFiles.from_files(folder, paths)
    files = replace(Fp8TensorFiles.from_files(folder, paths), block_shape=block_shape_from_config(quantization))
    return files.renamed(published_names(list(files.locations))) if _is_composite(config) else files


def config_dtype(config: dict[str, Any]) -> torch.dtype:
    """The dtype in the config; bfloat16 when it is missing or has 8 bits."""
    name = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    return DTYPES.get(name, torch.bfloat16)


def network_weights(
    loader: WeightLoader,
    config: dict[str, Any],
    dimensions: Dimensions,
    embedding_device: torch.device,
    context_window: int,
    places: Places = (),
) -> Weights:
    """Load the largest weights first: quantizing them needs extra memory, and most is free at the start."""
    elsewhere = [(loader.on(device), count) for device, count in places]
    of_layers = chain((each for each, count in elsewhere for _ in range(count)), repeat(loader))
    embedding = loader.embedding(embedding_device)
    is_tied = config.get("tie_word_embeddings", False) or "lm_head.weight" not in loader.files
    head = loader.tied_lm_head(embedding) if is_tied else loader.linear("lm_head")
    per_layer_input = _per_layer_input(loader, embedding_device) if dimensions.per_layer_input_size else None
    kinds = [(rope, dimensions.attention(index)) for index, rope in enumerate(_ropes(config, dimensions.layers))]
    distinct = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    layers = [
        replace(
            _layer(layer_loader, config, index, dimensions),
            sliding_window=sliding_window(config, index),
            residual_scale=dimensions.scaling.residual,
            attention_kind=distinct.index(kind),
        )
        for index, (kind, layer_loader) in enumerate(zip(kinds, of_layers, strict=False))
    ]
    norm = loader.tensor("model.norm.weight")
    positions = torch.arange(context_window + SCRATCH_ROWS)  # a config may declare millions
    angles = tuple(RopeAngles.of(rope, positions, attention.head_size, norm) for rope, attention in distinct)
    attentions = tuple(attention for _rope, attention in distinct)
    mapped = loader.kept.mapped if loader.kept else None
    own_bytes = sum(each.loaded_bytes for each, _count in [*elsewhere, (loader, 0)]) - (mapped.bytes if mapped else 0)
    check = mapped.check if mapped else None
    return Weights(embedding, layers, norm, head, angles, attentions, own_bytes, per_layer_input, places, check)


def _per_layer_input(loader: WeightLoader, embedding_device: torch.device) -> PerLayerInput:
    embedding = loader.embedding(embedding_device, f"{PER_LAYER.embedding}.weight")
    norm = loader.tensor(f"{PER_LAYER.norm}.weight")
    return PerLayerInput(embedding, loader.linear(PER_LAYER.model_projection), norm)


def _layer(loader: WeightLoader, config: Mapping[str, Any], index: int, sizes: Dimensions) -> DecoderLayer:
    prefix, family = f"model.layers.{index}", FAMILIES[config["model_type"]]
    names = family.names

    def norm(name: str | None) -> torch.Tensor | None:
        return loader.tensor(f"{prefix}.{name}.weight") if name is not None else None

    with launching_on(loader.device):  # kernels are tried there
        if sizes.delta_net is not None and index in sizes.recurrent_layers:
            mixer = _delta_net(loader, prefix, names, sizes.delta_net)
        else:
            mixer = _attention(loader, prefix, family, sizes.shape(index))
        scalar = loader.optional(f"{prefix}.{LAYER_SCALAR}")
        return DecoderLayer(
            input_layernorm=norm(names.input_norm),
            self_attn=mixer,
            post_attention_layernorm=norm(names.mlp_norm),
            mlp=_mlp(loader, prefix, config, index),
            sliding_window=None,
            attention_output_norm=norm(names.attention_output_norm),
            mlp_output_norm=norm(names.mlp_output_norm),
            per_layer_gate=_per_layer_gate(loader, prefix),
            output_scale=1.0 if scalar is None else scalar.item(),
        )


def _per_layer_gate(loader: WeightLoader, prefix: str) -> PerLayerGate | None:
    if f"{prefix}.{PER_LAYER.gate}.weight" not in loader.files:
        return None
    gate, projection = (loader.linear(f"{prefix}.{name}") for name in (PER_LAYER.gate, PER_LAYER.projection))
    return PerLayerGate(gate, projection, loader.tensor(f"{prefix}.{PER_LAYER.output_norm}.weight"))


def _mlp(loader: WeightLoader, prefix: str, config: Mapping[str, Any], index: int) -> GatedMlp | MixtureOfExperts:
    family = FAMILIES[config["model_type"]]
    if family.experts is not None and has_experts(config, index):
        routing = Routing(config["num_experts_per_tok"], is_topk_normalized=config["norm_topk_prob"])
        clamp = SwiGluClamp(config["swiglu_alpha"], config["swiglu_limit"]) if "swiglu_limit" in config else SILU
        return load_moe(loader, prefix, family.experts, routing, activation=clamp)
    gate_up_proj = loader.linear(*(f"{prefix}.{name}" for name in family.names.gate_up))
    return GatedMlp(gate_up_proj, loader.linear(f"{prefix}.mlp.down_proj"), family.activation)


def _attention(loader: WeightLoader, prefix: str, family: Family, shape: LayerShape) -> Attention:
    q_norm, k_norm = (loader.optional(f"{prefix}.self_attn.{each}.weight") for each in ("q_norm", "k_norm"))
    wide_norms = None
    if family.has_wide_qk_norms and q_norm is not None and k_norm is not None:
        wide_norms, q_norm, k_norm = WideNorms(q_norm, k_norm), None, None
    return Attention(
        qkv_proj=loader.linear(*(f"{prefix}.{name}" for name in family.names.qkv_of(shape))),
        q_norm=q_norm,
        k_norm=k_norm,
        o_proj=loader.linear(f"{prefix}.self_attn.o_proj"),
        has_output_gate=family.has_output_gate,
        wide_norms=wide_norms,
        sinks=loader.tensor(f"{prefix}.self_attn.sinks") if family.has_sinks else None,
        kv_source=shape.kv_source,
    )


def _delta_net(loader: WeightLoader, prefix: str, names: LayerNames, sizes: DeltaNetSizes) -> GatedDeltaNet:
    """A recurrent layer. The gates stay floats in every format: they are small, and decide what is forgotten."""
    tensors = f"{prefix}.linear_attn"
    ba_proj = float_linear(torch.cat([loader.tensor(f"{prefix}.{name}.weight") for name in names.delta_ba]))
    rates, biases = (loader.tensor(f"{tensors}.{name}").float() for name in ("A_log", "dt_bias"))
    return GatedDeltaNet(
        sizes,
        qkvz_proj=loader.linear(*(f"{prefix}.{name}" for name in names.delta_qkvz)),
        ba_proj=ba_proj,
        are_grouped=len(names.delta_qkvz) == 1,
        convolution=loader.tensor(f"{tensors}.conv1d.weight")[:, 0].T.contiguous(),
        gates=DeltaGates(-rates.exp(), biases),
        norm=loader.tensor(f"{tensors}.norm.weight"),
        out_proj=loader.linear(f"{tensors}.out_proj"),
    )
