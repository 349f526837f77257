"""Linear layers with 4-bit integer weights, a scale and a zero point for each group of inputs (AWQ, GPTQ).

One packed layout for all published ones. An int32 word holds 8 numbers of an output; the numbers of BLOCK_INPUTS
inputs are 16 words, in which number c of word w belongs to input 16 c + w, so that a kernel reads the inputs that it
multiplies side by side. Knows tensors; knows no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module

import torch
from torch import Tensor
from torch.nn import functional

from specchat.devices import kind_of
from specchat.forward.linear.linear import TOLERANCE, QuantLinear, sample_tensor, tensor_bytes
from specchat.forward.native.native_ops import DISABLED, ENVIRONMENT_VARIABLE

BLOCK_INPUTS, BLOCK_WORDS, NUMBERS_IN_WORD = 128, 16, 8
GROUP_SIZES = (16, 32, 64)  # and all multiples of BLOCK_INPUTS
SAMPLE_ROWS = (1, 2, 7, 16)


@dataclass(frozen=True)
class Int4Weight:
    """A weight is (number - zero point) * scale."""

    words: Tensor  # int32 [out, 16 * blocks of inputs]
    zeros: Tensor  # int8 [groups, out]
    scales: Tensor  # [groups, out]
    group_size: int  # inputs that share a scale
    in_features: int

    @classmethod
    def pack(cls, numbers: Tensor, zeros: Tensor, scales: Tensor, group_size: int) -> Int4Weight:
        """numbers: 0 to 15, uint8 [out, in]; zeros, scales: [groups, out]"""
        outputs, inputs = numbers.shape
        padded = functional.pad(numbers, (0, -inputs % BLOCK_INPUTS))
        blocks = padded.view(outputs, -1, NUMBERS_IN_WORD, BLOCK_WORDS)
        words = torch.zeros(outputs, blocks.shape[1], BLOCK_WORDS, dtype=torch.int32)
        for place in range(NUMBERS_IN_WORD):
            words |= blocks[:, :, place].int() << 4 * place
        return cls(words.flatten(1), zeros.to(torch.int8), scales, group_size, inputs)

    @classmethod
    def stacked(cls, parts: Sequence[Int4Weight]) -> Int4Weight:
        """The weights of several layers with the same inputs, one after the other."""
        words, zeros = torch.cat([part.words for part in parts]), torch.cat([part.zeros for part in parts], dim=1)
        scales = torch.cat([part.scales for part in parts], dim=1)
        return cls(words, zeros, scales, parts[0].group_size, parts[0].in_features)

    @property
    def out_features(self) -> int:
        return len(self.words)

    @property
    def bytes(self) -> int:
        return tensor_bytes(self.words, self.zeros, self.scales)

    def to(self, device: torch.device) -> Int4Weight:
        return replace(self, words=self.words.to(device), zeros=self.zeros.to(device), scales=self.scales.to(device))

    def dequantized(self, dtype: torch.dtype, first: int = 0, last: int | None = None) -> Tensor:
        """Some rows as floats, each number rounded once. [last - first, in]"""
        words = self.words[first:last].view(-1, self.words.shape[1] // BLOCK_WORDS, 1, BLOCK_WORDS)
        places = torch.arange(0, 4 * NUMBERS_IN_WORD, 4, dtype=torch.int32, device=words.device)
        numbers = ((words >> places[:, None]) & 15).flatten(1)[:, : self.in_features]
        zeros, scales = (self._of_inputs(each[:, first:last]) for each in (self.zeros.int(), self.scales.float()))
        return ((numbers - zeros) * scales).to(dtype)

    def _of_inputs(self, of_groups: Tensor) -> Tensor:
        """[groups, rows] -> [rows, in]"""
        return of_groups.T.repeat_interleave(self.group_size, dim=1)[:, : self.in_features]


Int4Matmul = Callable[[Tensor, Int4Weight, Tensor | None], Tensor]  # [N, in], weight, bias -> [N, out]


@dataclass(frozen=True)
class Int4Linear(QuantLinear):
    """A 4-bit weight that a GPU multiplies without dequantizing it in memory."""

    is_batch_invariant = True

    weight: Int4Weight
    bias: Tensor | None
    multiply: Int4Matmul

    @property
    def bytes(self) -> int:
        return super().bytes + self.weight.bytes

    def __call__(self, rows: Tensor, /) -> Tensor:
        return self.multiply(rows, self.weight, self.bias)


@lru_cache
def int4_matmul(device: torch.device, dtype: torch.dtype) -> Int4Matmul | None:
    """The kernel of this device; None without one, or when a test gives other results than dequantized weights."""
    if not kind_of(device).has_kernels or os.environ.get(ENVIRONMENT_VARIABLE) == DISABLED:
        return None
    try:
        import_module("triton")  # the module below may be loaded already
        from specchat.forward.cuda.triton_linear import int4_product
    except ImportError:
        return None
    try:
        return int4_product if _is_right(int4_product, device, dtype) else None
    except Exception:  # noqa: BLE001 - compilers of kernels and drivers raise anything
        return None


@torch.inference_mode()
def _is_right(multiply: Int4Matmul, device: torch.device, dtype: torch.dtype) -> bool:
    outputs, inputs, group_size = 40, 3 * BLOCK_INPUTS // 2, 64
    numbers = torch.arange(outputs * inputs).view(outputs, inputs).mul_(7).remainder_(16).to(torch.uint8)
    zeros = torch.arange(3 * outputs).view(3, outputs).remainder_(16)
    scales = sample_tensor(torch.float32, 3, outputs) / inputs
    weight = Int4Weight.pack(numbers, zeros, scales, group_size).to(device)
    rows = sample_tensor(dtype, SAMPLE_ROWS[-1], inputs).to(device)
    ours, expected = multiply(rows, weight, None), functional.linear(rows, weight.dequantized(dtype))
    is_invariant = all(torch.equal(multiply(rows[:count], weight, None), ours[:count]) for count in SAMPLE_ROWS)
    return is_invariant and torch.allclose(ours, expected, TOLERANCE[dtype], TOLERANCE[dtype])
