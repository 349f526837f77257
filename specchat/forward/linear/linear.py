"""Linear layers with float weights, and the weights that quantized layers are made from.

`quant_linear.py` has the layers with 8-bit and 4-bit weights. A weight is a `WeightSource` that is read in chunks of
rows, so that no complete float copy is in memory while it is packed or quantized. Knows tensors; knows no network and
no file.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, is_dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from specchat.devices import kind_of
from specchat.forward.cuda.kernel_trial import passes, triton_module
from specchat.forward.native.native_ops import Kernel, NativeBorderError, NativeKernels, data_pointer, native_kernels

Linear = Callable[[Tensor], Tensor]  # [N, in] -> [N, out]
ONEDNN_PACK_ROWS = 8  # the row count that packed weights are laid out for; measured to be good from 1 to 128
CHUNK_ELEMENTS = 2**19  # numbers of a weight that are in memory as floats during quantization
TILE = 32  # outputs that bitsandbytes computes together on a CPU; chunks have whole tiles
INPUT_ALIGNMENT = 32  # bfloat16 inputs of a native kernel are whole tiles of AMX
SAMPLE_ROWS = (1, 2, 7, 16, 17, 33, 64)  # of products on a GPU: one and several tiles of tensor cores
STATE_OF_BITSANDBYTES = "QuantState"  # the scales of nf4 and more; its class takes a second to import
TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.05}  # for sums in a different order


class QuantLinear(ABC):
    """A linear layer in one of QUANT_FORMATS, floats included. Subclasses are dataclasses of tensors."""

    is_batch_invariant: ClassVar[bool] = False  # a row has the same bits whatever other rows are in the pass

    @property
    def bytes(self) -> int:
        return sum(map(bytes_of, vars(self).values()))

    @abstractmethod
    def __call__(self, rows: Tensor, /) -> Tensor:
        """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""


@dataclass(frozen=True)
class WeightSource:
    """A weight that may still be in a file: its rows are read on request."""

    shape: tuple[int, int]  # out, in
    read_rows: Callable[[int, int], Tensor]  # first, last -> [last - first, in], on the device, in the compute dtype
    device: torch.device

    @classmethod
    def from_tensor(cls, weight: Tensor) -> WeightSource:
        return cls((weight.shape[0], weight.shape[1]), lambda first, last: weight[first:last], weight.device)

    def all_rows(self) -> Tensor:
        return self.read_rows(0, self.shape[0])

    def row_chunks(self) -> Iterator[tuple[int, Tensor]]:
        """The rows in chunks of whole tiles (the last chunk may be smaller), each with the index of its first row."""
        height = max(CHUNK_ELEMENTS // self.shape[1] // TILE, 1) * TILE
        for first, last in pairwise([*range(0, self.shape[0], height), self.shape[0]]):
            yield first, self.read_rows(first, last)


class PackedWeight(Protocol):
    def dequantized(self, dtype: torch.dtype) -> Tensor: ...


Weight = TypeVar("Weight", bound=PackedWeight)


@dataclass(frozen=True)
class PackedWeightLinear(QuantLinear, Generic[Weight]):
    """A packed weight that a GPU multiplies without dequantizing it in memory."""

    is_batch_invariant = True

    weight: Weight
    bias: Tensor | None
    multiply: Callable[[Tensor, Weight, Tensor | None], Tensor]  # [N, in], weight, bias -> [N, out]

    def __call__(self, rows: Tensor, /) -> Tensor:
        return self.multiply(rows, self.weight, self.bias)


@dataclass(frozen=True)
class FloatLinear(QuantLinear):
    weight: Tensor
    bias: Tensor | None

    def __call__(self, rows: Tensor, /) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)


FloatMatmul = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # [N, in], weight, bias -> [N, out]


@dataclass(frozen=True)
class TiledFloatLinear(FloatLinear):
    """A float weight that a GPU multiplies in tiles of fixed sums."""

    is_batch_invariant = True

    multiply: FloatMatmul

    def __call__(self, rows: Tensor, /) -> Tensor:
        return self.multiply(rows, self.weight, self.bias)


@dataclass(frozen=True)
class NativeLinear(QuantLinear):
    """A float weight, packed for the kernel of `native_linear.cpp`: [blocks, words, lanes, numbers in 32 bits]."""

    is_batch_invariant = True

    weight: Tensor
    bias: Tensor | None
    in_features: int
    out_features: int
    kernel: Kernel

    def __getstate__(self) -> dict[str, object]:
        """For a file: the kernel is that of the process that reads it."""
        return {name: value for name, value in vars(self).items() if name != "kernel"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, kernel=linear_kernel(native_kernels(), state["weight"].dtype))

    @classmethod
    def pack(cls, weight: Tensor, bias: Tensor | None, lanes: int, kernel: Kernel) -> NativeLinear:
        """Outputs are padded to whole blocks, bfloat16 inputs to whole tiles. weight [out, in]"""
        outputs, inputs = weight.shape
        per_word = 4 // weight.element_size()
        input_padding = -inputs % INPUT_ALIGNMENT if per_word > 1 else 0
        if input_padding or outputs % lanes:
            weight = functional.pad(weight, (0, input_padding, 0, -outputs % lanes))
        blocks = weight.view(len(weight) // lanes, lanes, -1, per_word).transpose(1, 2).contiguous()
        return cls(blocks, bias, inputs, outputs, kernel)

    @property
    def padded_inputs(self) -> int:
        return self.weight.shape[1] * self.weight.shape[3]

    def __call__(self, rows: Tensor, /) -> Tensor:
        inputs = self.padded_inputs
        if rows.shape[-1] != self.in_features or rows.dtype != self.weight.dtype:
            raise NativeBorderError(f"linear: rows of {rows.shape[-1]} {rows.dtype}, not {self.in_features}")
        if rows.shape[-1] != inputs:
            rows = functional.pad(rows, (0, inputs - rows.shape[-1]))
        rows = rows.contiguous()
        out = rows.new_empty(*rows.shape[:-1], self.out_features)
        self.kernel(
            rows.data_ptr(), self.weight.data_ptr(), data_pointer(self.bias), out.data_ptr(),
            rows.numel() // inputs, inputs, self.out_features, torch.get_num_threads(),
        )  # fmt: skip
        return out


@dataclass(frozen=True)
class OneDnnLinear(QuantLinear):
    """A float weight in the packed layout of oneDNN."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, rows: Tensor, /) -> Tensor:
        multiply = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001
        return multiply(rows, self.weight, self.bias, "none", [], "")


def float_linear(weight: Tensor, bias: Tensor | None = None) -> QuantLinear:
    """A linear layer with a float weight. On a CPU the weight is packed, and the original can be freed."""
    if kind_of(weight.device).is_gpu:
        return FloatLinear(weight, bias)
    native = native_kernels()
    kernel = linear_kernel(native, weight.dtype) if bias is None or bias.dtype == weight.dtype else None
    if kernel is not None:
        return NativeLinear.pack(weight, bias, native.lanes, kernel)
    if torch.backends.mkldnn.is_available():
        # what torch.compile calls for frozen weights; it has no public name, and raises for float16 on older CPUs
        with suppress(RuntimeError):
            return OneDnnLinear(torch.ops.mkldnn._reorder_linear_weight(weight, ONEDNN_PACK_ROWS), bias)  # noqa: SLF001
    return FloatLinear(weight, bias)


def invariant_linear(weight: Tensor, bias: Tensor | None = None) -> QuantLinear:
    """A float weight so small that it costs nothing to give a row the same bits in every batch, where a kernel does."""
    multiply = float_matmul(weight.device, weight.dtype)
    return TiledFloatLinear(weight, bias, multiply) if multiply else float_linear(weight, bias)


@lru_cache
def float_matmul(device: torch.device, dtype: torch.dtype) -> FloatMatmul | None:
    """The kernel of this device; None without one, or when a test gives other results than torch."""
    sample = lambda: [sample_tensor(dtype, 128, 5 * 64).to(device)]
    return tried_product("triton_linear.float_product", device, dtype, sample, "float weights")


@lru_cache
def linear_kernel(native: NativeKernels, dtype: torch.dtype) -> Kernel | None:
    """The native kernel for this dtype; None when there is none, or when a test gives other results than torch."""
    kernel = native.kernel("linear", dtype)
    if kernel is None:
        return None
    tolerance, outputs, inputs = TOLERANCE[dtype], 5 * native.lanes + 3, 2 * INPUT_ALIGNMENT + 4
    rows, weight, bias = (sample_tensor(dtype, *shape) for shape in ((35, inputs), (outputs, inputs), (outputs,)))
    linear, expected = NativeLinear.pack(weight, bias, native.lanes, kernel), functional.linear(rows, weight, bias)
    ours = linear(rows)
    is_invariant = all(torch.equal(linear(rows[:count]), ours[:count]) for count in (1, 2, 5, 16))
    return kernel if is_invariant and torch.allclose(ours, expected, tolerance, tolerance) else None


def tried_product(
    name: str, device: torch.device, dtype: torch.dtype, samples: Callable[[], Iterable[Weight | Tensor]], kind: str
) -> Callable[[Tensor, Any, Tensor | None], Tensor] | None:
    """The kernel MODULE.FUNCTION of this device; None without one, or where it is not right for a sample of weights."""
    module, _dot, function = name.partition(".")
    if (kernels := triton_module(module, device)) is None:
        return None
    multiply = getattr(kernels, function)

    def is_right(weight: Weight | Tensor) -> bool:
        floats = weight if isinstance(weight, Tensor) else weight.dequantized(dtype)
        return is_right_product(lambda rows: multiply(rows, weight, None), floats)

    return multiply if passes(lambda: all(map(is_right, samples())), f"kernels for {kind}") else None


@torch.inference_mode()
def is_right_product(multiply: Linear, weight: Tensor) -> bool:
    """Whether a kernel computes what torch computes with the dequantized weight, and a row alike in every batch."""
    rows, tolerance = sample_tensor(weight.dtype, SAMPLE_ROWS[-1], weight.shape[1]), TOLERANCE[weight.dtype]
    rows = rows.to(weight.device)
    ours, expected = multiply(rows), functional.linear(rows, weight)
    is_invariant = all(torch.equal(multiply(rows[:count]), ours[:count]) for count in SAMPLE_ROWS)
    size = float(expected.float().std())  # sums may be small, and a factor must not pass
    return is_invariant and torch.allclose(ours.float(), expected.float(), tolerance, tolerance * size)


def bytes_of(part: object) -> int:
    """The bytes of all tensors in a layer, or in a part of it."""
    if isinstance(part, Tensor):
        return part.nbytes
    parts = part if isinstance(part, tuple) else vars(part).values() if is_dataclass(part) else ()
    return sum(map(bytes_of, cast("Iterable[object]", parts)))


Part = TypeVar("Part")


def with_tensors(change: Callable[..., object], part: Part, *others: Part) -> Part:
    """A layer that no pass has used, or a part of it, with what `change` makes of each tensor, and of those of others.

    The others are like it.
    """
    if isinstance(part, Tensor):
        return cast("Part", change(part, *others))
    if type(part) is tuple:  # a shape stays one
        return cast("Part", tuple(map(partial(with_tensors, change), part, *others)))
    if not is_dataclass(part) and type(part).__name__ != STATE_OF_BITSANDBYTES:
        return part
    changed = copy(part)
    for name in vars(part):
        vars(changed)[name] = with_tensors(change, *(getattr(each, name) for each in (part, *others)))
    return changed


def sample_tensor(dtype: torch.dtype, *shape: int) -> Tensor:
    """The same numbers between -1 and 1 in every process, to compare a kernel with torch."""
    return torch.arange(math.prod(shape)).float().sin_().view(shape).to(dtype)
