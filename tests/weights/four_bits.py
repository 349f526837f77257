"""Tiny folders with 4-bit weights as AutoAWQ, AutoGPTQ and GPTQModel publish them, and the floats they stand for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.weights.eight_bits import SIZES

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # of AutoAWQ's pack


@dataclass(frozen=True)
class Quantized:
    numbers: Tensor  # 0 to 15 [out, in]
    zeros: Tensor  # [groups, out]
    scales: Tensor  # [groups, out]
    group_size: int

    @property
    def floats(self) -> Tensor:
        """float32 [out, in], number by number."""
        group = torch.arange(self.numbers.shape[1]) // self.group_size
        return (self.numbers - self.zeros[group].T).float() * self.scales[group].T.float()


def quantized(weight: Tensor, group_size: int) -> Quantized:
    """Rounded to 16 steps between the smallest and the largest number of each group."""
    inputs = weight.shape[1]
    groups = [weight[:, first : first + group_size] for first in range(0, inputs, group_size)]
    low, high = (torch.stack([pick(group, dim=1) for group in groups]) for pick in (torch.amin, torch.amax))
    scales = ((high - low) / 14).clamp(min=1e-3).half()
    zeros = (-low / scales.float()).round().clamp(1, 15).int()
    group = torch.arange(inputs) // group_size
    numbers = (weight / scales[group].T.float() + zeros[group].T).round().clamp(0, 15).int()
    return Quantized(numbers, zeros, scales, group_size)


def packed(numbers: Tensor, order: list[int]) -> Tensor:
    """Eight neighbours of a row in a word; the first of `order` in the lowest bits. [rows, 8 n] -> int32 [rows, n]"""
    words = torch.zeros(numbers.shape[0], numbers.shape[1] // 8, dtype=torch.int64)
    for place, number in enumerate(order):
        words |= numbers[:, number::8].long() << 4 * place
    return torch.where(words >= 2**31, words - 2**32, words).int()


def awq_tensors(weight: Quantized) -> dict[str, Tensor]:
    return {
        "qweight": packed(weight.numbers.T, AWQ_ORDER),
        "qzeros": packed(weight.zeros, AWQ_ORDER),
        "scales": weight.scales,
    }


def gptq_tensors(weight: Quantized, zero_offset: int = 1) -> dict[str, Tensor]:
    in_order = list(range(8))
    return {
        "qweight": packed(weight.numbers, in_order).T.contiguous(),
        "qzeros": packed(weight.zeros - zero_offset, in_order),
        "scales": weight.scales,
        "g_idx": (torch.arange(weight.numbers.shape[1]) // weight.group_size).int(),
    }


LAYOUTS = {
    "awq": (awq_tensors, {"quant_method": "awq", "version": "gemm", "bits": 4, "zero_point": True}),
    "gptq": (gptq_tensors, {"quant_method": "gptq", "bits": 4, "desc_act": False, "sym": False}),
    "gptq_v2": (
        lambda weight: gptq_tensors(weight, 0),
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
    ),
}


def save_network(folder: Path, layout: str, group_size: int = 32, family: str = "Qwen2") -> tuple[Path, Path]:
    """A random network in 4 bits, and the same as floats: two folders."""
    import transformers

    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**SIZES)
    floats, small = folder / "floats", folder / "small"
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(floats)
    tensors, four_bits = load_file(floats / "model.safetensors"), dict[str, Tensor]()
    to_tensors, quantization = LAYOUTS[layout]
    for name, weight in list(tensors.items()):
        if re.search(r"_proj\.weight$", name):
            parts = quantized(weight, group_size if group_size > 0 else weight.shape[1])
            tensors[name] = parts.floats
            four_bits |= {f"{name.removesuffix('weight')}{part}": each for part, each in to_tensors(parts).items()}
        else:
            four_bits[name] = weight
    save_file(tensors, floats / "model.safetensors", {"format": "pt"})
    small.mkdir()
    save_file(four_bits, small / "model.safetensors", {"format": "pt"})
    described: dict[str, Any] = json.loads((floats / "config.json").read_text())
    described["quantization_config"] = quantization | {"group_size": group_size}
    (small / "config.json").write_text(json.dumps(described))
    return small, floats
