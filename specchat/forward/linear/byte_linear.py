"""Linear layers with 8-bit weights and a scale per output, int8 or e4m3, for the Triton kernel of 4-bit ones (W8A16).

Activations stay as they are: each number becomes a bfloat16 or float16 in registers, exactly, and the sum is scaled at
the end. The layout is that of `int4_linear.py`, with 2 numbers in a word. Knows tensors; knows no file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.linear.int4_linear import WORD_COUNTS
from specchat.forward.linear.linear import PackedWeightLinear, tried_product

WORDS, BYTES_IN_WORD = WORD_COUNTS[0], 2
BLOCK_BYTES = WORDS * BYTES_IN_WORD  # inputs of a block, and bytes of it for an output


@dataclass(frozen=True)
class ByteWeight:
    """A weight is number * scale of its output."""

    group_chunks: ClassVar[int] = 2**30  # all inputs share a scale

    words: Tensor  # int16 [blocks of inputs, out, words of a block]
    scales: Tensor  # float32 [out]
    numbers_dtype: torch.dtype  # int8 or float8_e4m3fn
    in_features: int

    @classmethod
    def pack(cls, numbers: Tensor, scales: Tensor) -> ByteWeight:
        """numbers: int8 or float8_e4m3fn [out, in]; scales [out]"""
        outputs, inputs = numbers.shape
        padded = functional.pad(numbers.view(torch.uint8), (0, -inputs % BLOCK_BYTES))
        places = padded.view(outputs, -1, BYTES_IN_WORD, WORDS).permute(1, 0, 3, 2)
        words = padded.new_empty(places.shape).copy_(places).view(torch.int16)[..., 0]
        return cls(words, scales.float(), numbers.dtype, inputs)

    @property
    def groups(self) -> Tensor:
        """The bits of the scales, as the kernel reads them. int32 [1, out]"""
        return self.scales.view(torch.int32).unsqueeze(-2)

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """As floats, each number rounded once. [out, in]"""
        places = self.words[..., None].view(torch.uint8).permute(1, 0, 3, 2)
        numbers = places.reshape(places.shape[0], -1).view(self.numbers_dtype)[:, : self.in_features]
        return (numbers.float() * self.scales[:, None]).to(dtype)


ByteMatmul = Callable[[Tensor, ByteWeight, Tensor | None], Tensor]  # [N, in], weight, bias -> [N, out]


class ByteLinear(PackedWeightLinear[ByteWeight]):
    """A weight of 8 bits."""


@lru_cache
def byte_matmul(device: torch.device, dtype: torch.dtype) -> ByteMatmul | None:
    """The kernel of this device; None without one, or when a test gives other results than dequantized weights."""

    def samples() -> list[ByteWeight]:
        outputs, inputs = 128, 5 * BLOCK_BYTES  # whole tiles and several splits, as in a model
        places = torch.arange(outputs * inputs).view(outputs, inputs) * 7 % 255 - 127
        numbers, scales = (places.to(torch.int8), (3.0 * places).to(torch.float8_e4m3fn)), torch.full((outputs,), 1e-3)
        return [ByteWeight.pack(each.to(device), scales.to(device)) for each in numbers]

    return tried_product("triton_linear.packed_product", device, dtype, samples, "8-bit weights")
