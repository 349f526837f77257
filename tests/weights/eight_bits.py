"""Tiny folders with FP8 weights, in every published layout of scales."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

BLOCK = (128, 128)
TOP = 448  # the largest number of e4m3
SIZES = {
    "vocab_size": 96, "hidden_size": 160, "intermediate_size": 288, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096, "initializer_range": 0.1,
    "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip


def in_blocks(weight: Tensor, block: tuple[int, int] = BLOCK) -> tuple[Tensor, Tensor]:
    """A matrix in FP8 and the scales of its blocks: the largest element of a block becomes 448."""
    rows, columns = (-(-size // per) for size, per in zip(weight.shape, block, strict=True))
    small, scales = torch.empty(weight.shape, dtype=torch.float8_e4m3fn), torch.empty(rows, columns)
    for row in range(rows):
        for column in range(columns):
            here = (
                slice(row * block[0], (row + 1) * block[0]),
                slice(column * block[1], (column + 1) * block[1]),
            )
            scales[row, column] = weight[here].abs().max() / TOP
            small[here] = (weight[here] / scales[row, column]).to(torch.float8_e4m3fn)
    return small, scales


def by_output(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix in FP8, and a scale for every output [out, 1]."""
    scales = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / TOP
    return (weight / scales).to(torch.float8_e4m3fn), scales


def as_one(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix in FP8, and its one scale [1]."""
    scale = weight.abs().max()[None] / TOP
    return (weight / scale).to(torch.float8_e4m3fn), scale


def spread(scales: Tensor, shape: torch.Size, block: tuple[int, int] = BLOCK) -> Tensor:
    """A scale for every element of a matrix."""
    if scales.numel() == 1 or scales.shape == (shape[0], 1):
        return scales.float().expand(shape)
    wide = scales.float().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return wide[: shape[0], : shape[1]]


def compressed(strategy: str, **more: Any) -> dict[str, Any]:
    """The quantization_config that llm-compressor writes."""
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, "dynamic": False, **more}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": {"num_bits": 8, "type": "float"}}
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None,
        "sparsity_config": {"format": "dense"},
    }  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """One published layout."""

    quantization_config: Mapping[str, Any]
    suffix: str  # of the names of scales
    quantize: Callable[[Tensor], tuple[Tensor, Tensor]]
    scales: torch.dtype = torch.float32
    block: tuple[int, int] = BLOCK
    other_tensors: tuple[str, ...] = ()  # of a linear layer, without an effect on its weight


def _scalar(weight: Tensor) -> tuple[Tensor, Tensor]:
    small, scale = as_one(weight)
    return small, scale[0]


def _in_small_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    return in_blocks(weight, SMALL)


HALF, SMALL = torch.bfloat16, (64, 48)
LAYOUTS = {
    "deepseek": Layout({"quant_method": "fp8", "weight_block_size": [128, 128]}, "_scale_inv", in_blocks),
    "small": Layout({"quant_method": "fp8", "weight_block_size": SMALL}, "_scale_inv", _in_small_blocks, block=SMALL),
    "one": Layout(compressed("tensor"), "_scale", as_one, HALF, other_tensors=("input_scale",)),
    "outputs": Layout(compressed("channel"), "_scale", by_output, HALF),
    "blocks": Layout(compressed("block", block_structure=[128, 128]), "_scale", in_blocks, HALF),
    "fbgemm": Layout({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "_scale", by_output),
    "scalar": Layout(
        {"quant_method": "fp8", "activation_scheme": "static"}, "_scale", _scalar, other_tensors=("input_scale",)
    ),
}


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}


def write(folder: Path, layout: str, family: str = "qwen3", **changes: Any) -> Path:
    """Save a random network in this layout in `small`, and the dequantized weights in `float`."""
    import transformers

    torch.manual_seed(1)
    kinds = {"qwen3": "Qwen3", "qwen2": "Qwen2", "llama": "Llama", "mistral": "Mistral", "qwen3_moe": "Qwen3Moe"}
    sizes, kind = SIZES | (EXPERTS if family == "qwen3_moe" else {}), kinds[family]
    network = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes))
    network.bfloat16().save_pretrained(folder / "float")
    config = json.loads((folder / "float" / "config.json").read_text())
    published, stored, expected = LAYOUTS[layout], dict[str, Tensor](), dict[str, Tensor]()
    for name, weight in load_file(folder / "float" / "model.safetensors").items():
        stored[name] = expected[name] = weight
        if re.search(r"_proj\.weight$", name):
            small, scales = published.quantize(weight.float())
            scales = scales.to(published.scales)
            stored[name], stored[name + published.suffix] = small, scales
            expected[name] = small.float() * spread(scales, weight.shape, published.block)
            stored |= {name.replace("weight", other): torch.full((1,), 7.0) for other in published.other_tensors}
    (folder / "small").mkdir()
    save_file(stored, folder / "small" / "model.safetensors", {"format": "pt"})
    changed = config | {"quantization_config": published.quantization_config} | changes
    (folder / "small" / "config.json").write_text(json.dumps(changed))
    save_file({name: tensor.float() for name, tensor in expected.items()}, folder / "float" / "model.safetensors")
    return folder
