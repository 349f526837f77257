"""Linear layers with 4-bit integer weights, a scale and a zero point for each group of inputs (AWQ, GPTQ).

One packed layout for all published ones, in the order in which a kernel reads. A word of 16 bits holds 4 numbers of an
output, and a block is W words of every output, one output after the other. Number c of word w belongs to input W c + w
of the block, so neighbouring words hold neighbouring inputs, which tensor cores take in pairs. W is 64 for groups of
128 inputs: a block of 256 inputs is 128 bytes of an output. Knows tensors; knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.linear.linear import PackedWeightLinear, sample_tensor, tried_product

NUMBERS_IN_WORD, WORD_COUNTS = 4, (64, 32, 16)
BLOCK_INPUTS = 128
GROUP_SIZES = (16, 32, 64)  # and all multiples of BLOCK_INPUTS


@dataclass(frozen=True)
class Int4Weight:
    """A weight is (number - zero point) * scale."""

    words: Tensor  # int16 [blocks of inputs, out, words of a block]
    groups: Tensor  # int32 [groups, out]: the bits of the scale, then those of the zero point
    scale_dtype: torch.dtype
    group_size: int  # inputs that share a scale
    in_features: int

    @classmethod
    def pack(cls, numbers: Tensor, zeros: Tensor, scales: Tensor, group_size: int) -> Int4Weight:
        """numbers: 0 to 15, uint8 [out, in]; zeros, scales: [groups, out]. Scales of 32 bits are rounded to float16."""
        outputs, inputs = numbers.shape
        word_count = words_of_block(group_size, inputs)
        padded = functional.pad(numbers, (0, -inputs % (NUMBERS_IN_WORD * word_count)))
        blocks = padded.view(outputs, -1, NUMBERS_IN_WORD, word_count)
        words = torch.zeros(blocks.shape[1], outputs, word_count, dtype=torch.int16)
        for place in range(NUMBERS_IN_WORD):
            words |= blocks[:, :, place].transpose(0, 1).to(torch.int16) << 4 * place
        return cls.of_words(words, zeros, scales, group_size, inputs)

    @classmethod
    def of_words(cls, words: Tensor, zeros: Tensor, scales: Tensor, group_size: int, inputs: int) -> Int4Weight:
        scales = scales if scales.dtype == torch.bfloat16 else scales.half()
        groups = scales.contiguous().view(torch.int16).int() << 16 | zeros.int()
        return cls(words, groups, scales.dtype, group_size, inputs)

    @classmethod
    def stacked(cls, parts: Sequence[Int4Weight]) -> Int4Weight:
        """The weights of several layers with the same inputs, one after the other."""
        words, groups = (torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("words", "groups"))
        return replace(parts[0], words=words, groups=groups)

    @property
    def numbers_dtype(self) -> torch.dtype | None:
        """None: of 4 bits."""
        return None

    @property
    def out_features(self) -> int:
        return self.words.shape[1]

    @property
    def group_chunks(self) -> int:
        """The chunks of a group: a chunk is the inputs of one number of each word of a block."""
        chunk, is_all = self.words.shape[-1], self.group_size >= self.in_features
        block_chunks = NUMBERS_IN_WORD * -(-self.group_size // (NUMBERS_IN_WORD * chunk))
        return min(self.group_size // chunk, block_chunks) if not is_all else block_chunks

    def to(self, device: torch.device) -> Int4Weight:
        return replace(self, words=self.words.to(device), groups=self.groups.to(device))

    def dequantized(self, dtype: torch.dtype, first: int = 0, last: int | None = None) -> Tensor:
        """Some rows as floats, each number rounded once. [last - first, in]"""
        words = self.words[:, first:last].transpose(0, 1).int().unsqueeze(2)
        places = torch.arange(0, 4 * NUMBERS_IN_WORD, 4, dtype=torch.int32, device=words.device)
        numbers = ((words >> places[:, None]) & 15).flatten(1)[:, : self.in_features]
        groups = self.groups[:, first:last]
        of_groups = groups & 255, (groups >> 16).to(torch.int16).view(self.scale_dtype).float()
        zeros, scales = (each.T.repeat_interleave(self.group_size, dim=1)[:, : self.in_features] for each in of_groups)
        return ((numbers - zeros) * scales).to(dtype)


def words_of_block(group_size: int, inputs: int) -> int:
    """The most words whose blocks are whole parts of a group, and whose chunks are."""
    for count in WORD_COUNTS:
        block = NUMBERS_IN_WORD * count
        if group_size >= inputs or group_size % block == 0 or (block % group_size == 0 and group_size % count == 0):
            return count
    raise ValueError(f"no layout for groups of {group_size} inputs")


Int4Matmul = Callable[[Tensor, Int4Weight, Tensor | None], Tensor]  # [N, in], weight, bias -> [N, out]


class Int4Linear(PackedWeightLinear[Int4Weight]):
    """A weight of 4 bits."""


@lru_cache
def int4_matmul(device: torch.device, dtype: torch.dtype) -> Int4Matmul | None:
    """The kernel of this device; None without one, or when a test gives other results than dequantized weights."""
    sample = lambda: [sample_weight().to(device)]
    return tried_product("triton_linear.packed_product", device, dtype, sample, "4-bit weights")


def sample_weight() -> Int4Weight:
    outputs, inputs, group_size = 128, 5 * 256, 128  # whole tiles and several splits, as in a model
    numbers = torch.arange(outputs * inputs).view(outputs, inputs).mul_(7).remainder_(16).to(torch.uint8)
    groups = inputs // group_size
    zeros = torch.arange(groups * outputs).view(groups, outputs).remainder_(16)
    scales = sample_tensor(torch.float16, groups, outputs) / inputs
    return Int4Weight.pack(numbers, zeros, scales, group_size)
