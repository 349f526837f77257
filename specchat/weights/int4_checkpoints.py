"""Reads published 4-bit checkpoints: AWQ and GPTQ, into the packed layout of `forward/linear/int4_linear.py`.

| | AWQ (version "gemm") | GPTQ |
|---|---|---|
| `x.qweight` int32 | `[in, out / 8]`: outputs 0 2 4 6 1 3 5 7 of eight, lowest bits first | `[in / 8, out]`, in order |
| `x.qzeros` int32 | `[groups, out / 8]`, in the same order | `[groups, out / 8]` in order, less 1 unless "gptq_v2" |
| `x.scales` | `[groups, out]` | `[groups, out]` |
| `x.g_idx` | | `[in]`: the group of each input; act-order, where they are mixed, is refused |

The weight `x.weight` does not exist in the files. It is dequantized when it is read, so that every device and every
other format of weights can use it. This module knows files, and no network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specchat.errors import ModelError
from specchat.forward.linear.int4_linear import BLOCK_INPUTS, GROUP_SIZES, Int4Weight
from specchat.weights.tensor_files import TensorFiles

AWQ, GPTQ = "awq", "gptq"
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the outputs of eight, from the lowest bits of a word on
BITS, NUMBERS_IN_WORD = 4, 8
WEIGHT = ".weight"
OTHER_CHECKPOINT = "choose another checkpoint of this model, or its floats with --weights nf4"


@dataclass(frozen=True)
class Int4Scheme:
    """How the words of a checkpoint are to be read."""

    method: str
    group_size: int | None  # None: one group for all inputs
    zero_offset: int = 0  # added to the stored zero points

    @property
    def order(self) -> tuple[int, ...]:
        return AWQ_ORDER if self.method == AWQ else tuple(range(NUMBERS_IN_WORD))


@dataclass(frozen=True)
class Int4TensorFiles(TensorFiles):
    scheme: Int4Scheme = Int4Scheme(AWQ, BLOCK_INPUTS)
    dtype: torch.dtype = torch.float16  # of the dequantized weights
    has_scaled_weights = True
    _last: dict[str, Int4Weight] = field(default_factory=dict[str, Int4Weight], init=False)  # is read in chunks

    def __contains__(self, name: str) -> bool:
        return name in self.locations or self.has_int4_weight(name)

    def shape(self, name: str) -> tuple[int, ...]:
        if not self.has_int4_weight(name):
            return super().shape(name)
        rows, columns = super().shape(_part(name, "qweight"))
        is_awq = self.scheme.method == AWQ
        return (columns * NUMBERS_IN_WORD, rows) if is_awq else (columns, rows * NUMBERS_IN_WORD)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Read some rows of a matrix; 4-bit weights are dequantized."""
        packed = self.int4_weight(name)
        return super().read_rows(name, first, last) if packed is None else packed.dequantized(self.dtype, first, last)

    def has_int4_weight(self, name: str) -> bool:
        return name.endswith(WEIGHT) and name not in self.locations and _part(name, "qweight") in self.locations

    def int4_weight(self, name: str) -> Int4Weight | None:
        if not self.has_int4_weight(name):
            return None
        if name not in self._last:
            weight = self._read_packed(name)
            self._last.clear()
            self._last[name] = weight
        return self._last[name]

    def _read_packed(self, name: str) -> Int4Weight:
        outputs, inputs = self.shape(name)
        group_size = self.scheme.group_size or inputs
        groups = -(-inputs // group_size)
        self._check_groups(name, inputs, group_size)
        words = self._read_part(name, "qweight", super().shape(_part(name, "qweight")))
        numbers = _unpacked(words, 1, self.scheme.order).T if self.scheme.method == AWQ else _unpacked(words, 0).T
        zeros = self._read_part(name, "qzeros", (groups, outputs // NUMBERS_IN_WORD))
        scales = self._read_part(name, "scales", (groups, outputs))
        if not scales.is_floating_point() or not bool(scales.isfinite().all()):
            raise ModelError(f"{self.source}: {_part(name, 'scales')} contains NaN or infinite values")
        zero_points = _unpacked(zeros, 1, self.scheme.order).to(torch.int8) + self.scheme.zero_offset
        return Int4Weight.pack(numbers, zero_points, scales, group_size)

    def _read_part(self, name: str, part: str, shape: tuple[int, ...]) -> Tensor:
        tensor = super().read_tensor(_part(name, part))
        if tensor.shape != shape or (part != "scales" and tensor.dtype != torch.int32):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ModelError(
                f"{self.source}: {_part(name, part)} is {list(tensor.shape)} {kind}, and its weight has {list(shape)}"
            )
        return tensor

    def _check_groups(self, name: str, inputs: int, group_size: int) -> None:
        index = _part(name, "g_idx")
        if index not in self.locations:
            return
        in_order = torch.arange(inputs, dtype=torch.int32) // group_size
        if not torch.equal(super().read_tensor(index).int(), in_order):
            raise ModelError(
                f"{self.source}: GPTQ with act-order (desc_act) is not supported: the inputs of {name} are not in the "
                f"order of their groups; {OTHER_CHECKPOINT}"
            )


def is_int4(quantization_config: object) -> bool:
    """Whether a `quantization_config` describes an AWQ or GPTQ checkpoint, supported or not."""
    return isinstance(quantization_config, Mapping) and quantization_config.get("quant_method") in (AWQ, GPTQ)


def int4_scheme(config: Mapping[str, Any], source: object) -> Int4Scheme:
    """The scheme of a `quantization_config`; ModelError for one that this module cannot read."""
    method, name = config["quant_method"], str(config["quant_method"]).upper()
    bits, group_size = config.get("bits", config.get("w_bit")), config.get("group_size", config.get("q_group_size", -1))
    if bits != BITS:
        raise ModelError(f"{source}: {name} with {bits} bits is not supported, only with {BITS}; {OTHER_CHECKPOINT}")
    is_group = group_size == -1 or (isinstance(group_size, int) and group_size > 0 and not group_size % BLOCK_INPUTS)
    if not is_group and group_size not in GROUP_SIZES:
        sizes = ", ".join(map(str, GROUP_SIZES))
        raise ModelError(
            f"{source}: {name} with groups of {group_size} inputs is not supported, only of {sizes} and multiples of "
            f"{BLOCK_INPUTS}; {OTHER_CHECKPOINT}"
        )
    layout = config.get("version", "gemm") if method == AWQ else config.get("checkpoint_format", GPTQ)
    if str(layout).lower() not in ("gemm", GPTQ, "gptq_v2"):
        raise ModelError(f"{source}: {name} in the layout {layout!r} is not supported; {OTHER_CHECKPOINT}")
    zero_offset = 1 if method == GPTQ and str(layout).lower() == GPTQ else 0
    return Int4Scheme(method, None if group_size == -1 else group_size, zero_offset)


def _part(name: str, part: str) -> str:
    return f"{name.removesuffix(WEIGHT)}.{part}"


def _unpacked(words: Tensor, dim: int, order: tuple[int, ...] = tuple(range(NUMBERS_IN_WORD))) -> Tensor:
    """The numbers of words that each hold eight along a dimension; the lowest bits are number order[0] of the eight."""
    places: list[Tensor] = [torch.empty(0)] * NUMBERS_IN_WORD
    for index, place in enumerate(order):
        places[place] = ((words >> BITS * index) & 15).to(torch.uint8)
    return torch.stack(places, dim=dim + 1).flatten(dim, dim + 1)
