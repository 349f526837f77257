"""Quantized weights of a network of transformers: tensors to its code, linear layers to us.

The code of a network multiplies with `functional.linear(rows, weight)`, `rows @ weight` or `weight[expert]`. Our linear
layers (`quant_linear.py`) compute these products, so no family needs classes of its own. Whatever else the code does
with a weight, such as a product of two weights, gets its numbers as floats: that is right and slow, and `WeightUses`
notes it, so that the next load can leave this weight float.

Knows tensors; knows no family and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import QuantLinear

FLOAT, TRANSPOSED = "float", "transposed"  # other uses than of a weight [out, in]
IDENTITY_ROWS = 256  # that are multiplied together to dequantize a weight
ATTRIBUTES = frozenset((  # with every name that begins with `is_`
    "shape", "dtype", "device", "ndim", "layout", "requires_grad", "grad", "names", "dim", "ndimension", "size",
    "numel", "nelement", "element_size", "itemsize", "nbytes", "__len__", "stride", "requires_grad_",
))  # fmt: skip
SAME = frozenset(("to", "detach", "contiguous", "data", "type_as"))  # its products have the dtype of the rows anyway


@dataclass
class WeightUses:
    """How the code of a network uses those weights that it does not use as [out, in], by name."""

    by_name: dict[str, str] = field(default_factory=dict[str, str])

    def note(self, name: str, use: str) -> None:
        if self.by_name.get(name) != FLOAT:
            self.by_name[name] = use


class QuantWeight(Tensor):
    """A quantized weight with the shape, dtype and device of its floats. It has no numbers of its own."""

    weight_name: str
    uses: WeightUses
    is_transposed: bool  # the code sees [in, out]

    @classmethod
    def _like(cls, shape: Iterable[int], like: Tensor, name: str, uses: WeightUses, is_transposed: bool) -> Self:
        weight: Any = Tensor._make_wrapper_subclass(  # noqa: SLF001 - the constructor of tensors without numbers
            cls, tuple(shape), dtype=like.dtype, device=like.device
        )
        weight.weight_name, weight.uses, weight.is_transposed = name, uses, is_transposed
        weight._is_hf_initialized = True  # noqa: SLF001 - else transformers fills it with random numbers
        return weight

    @property
    def quantized_bytes(self) -> int:
        raise NotImplementedError

    def dequantized(self) -> Tensor:
        """The numbers that its products are made with, as the code sees them."""
        raise NotImplementedError

    def flipped(self) -> Self:
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "__get__":  # of an attribute
            name = func.__self__.__name__
        if name in ATTRIBUTES or name.startswith("is_"):
            with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
                return func(*args, **kwargs)
        if name in SAME and isinstance(args[0], QuantWeight):
            return args[0]
        operation = OPERATIONS.get(name)
        result = operation(*args, **kwargs) if operation is not None else NotImplemented
        if result is not NotImplemented:
            return result
        return func(*map(_as_floats, args), **{key: _as_floats(value) for key, value in kwargs.items()})

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return func(*map(_as_floats, args), **{key: _as_floats(value) for key, value in (kwargs or {}).items()})


class QuantMatrix(QuantWeight):
    """The weight of one linear layer."""

    linear: QuantLinear
    was_transposed: bool  # before the code flipped it

    @classmethod
    def make(cls, linear: QuantLinear, like: Tensor, name: str, uses: WeightUses, is_transposed: bool) -> QuantMatrix:
        """`like` has the shape, dtype and device of the floats."""
        weight = cls._like(like.shape, like, name, uses, is_transposed)
        weight.linear, weight.was_transposed = linear, is_transposed
        return weight

    @property
    def quantized_bytes(self) -> int:
        return self.linear.bytes

    def flipped(self) -> QuantMatrix:
        weight = self._like(reversed(self.shape), self, self.weight_name, self.uses, not self.is_transposed)
        weight.linear, weight.was_transposed = self.linear, self.was_transposed
        return weight

    def dequantized(self) -> Tensor:
        inputs = self.shape[0 if self.is_transposed else 1]
        identity = torch.eye(inputs, dtype=self.dtype, device=self.device)
        columns = torch.cat([self.linear(rows) for rows in identity.split(IDENTITY_ROWS)])
        return columns if self.is_transposed else columns.T.contiguous()

    def product(self, rows: Tensor, expects_transposed: bool) -> Tensor:
        """The linear layer of rows [..., in]; with floats where the code multiplies with the other side."""
        if self.is_transposed != expects_transposed:
            self.uses.note(self.weight_name, FLOAT if self.was_transposed else TRANSPOSED)
            numbers = self.dequantized().to(rows.dtype)
            return rows @ (numbers if expects_transposed else numbers.T)
        flat = rows.reshape(-1, rows.shape[-1]).contiguous()
        outputs = self.shape[1 if self.is_transposed else 0]
        out = self.linear(flat) if len(flat) else flat.new_empty(0, outputs)
        return out.view(*rows.shape[:-1], outputs)


class QuantExperts(QuantWeight):
    """The weights of the same linear layer of all experts: [experts, ., .]"""

    matrices: tuple[QuantMatrix, ...]

    @classmethod
    def make(cls, linear: ExpertLinear, like: Tensor, name: str, uses: WeightUses, is_transposed: bool) -> QuantExperts:
        weight = cls._like(like.shape, like, name, uses, is_transposed)
        weight.matrices = tuple(QuantMatrix.make(each, like[0], name, uses, is_transposed) for each in linear.experts)
        return weight

    @property
    def quantized_bytes(self) -> int:
        return sum(matrix.quantized_bytes for matrix in self.matrices)

    def flipped(self) -> QuantExperts:
        experts, first, second = self.shape
        weight = self._like((experts, second, first), self, self.weight_name, self.uses, not self.is_transposed)
        weight.matrices = tuple(matrix.flipped() for matrix in self.matrices)
        return weight

    def dequantized(self) -> Tensor:
        return torch.stack([matrix.dequantized() for matrix in self.matrices])

    def product(self, rows: Tensor) -> Any:
        """Rows of every expert [experts, n, in] times its weight [experts, in, out]."""
        if rows.dim() != 3 or len(rows) != len(self.matrices):
            return NotImplemented
        return torch.stack([matrix.product(each, True) for matrix, each in zip(self.matrices, rows, strict=True)])


def quant_weights(network: nn.Module) -> list[QuantWeight]:
    """All quantized weights of a network."""
    return [value for module in network.modules() for value in vars(module).values() if isinstance(value, QuantWeight)]


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(weight, QuantMatrix) or isinstance(rows, QuantWeight):
        return NotImplemented
    return _plus(weight.product(rows, expects_transposed=False), bias)


def _matmul(rows: Any, weight: Any) -> Any:
    if isinstance(rows, QuantWeight):
        return NotImplemented
    return weight.product(rows, True) if isinstance(weight, QuantMatrix) else weight.product(rows)


def _addmm(bias: Tensor, rows: Tensor, weight: Any) -> Any:
    return _plus(_matmul(rows, weight), bias) if isinstance(weight, QuantMatrix) else NotImplemented


def _plus(out: Any, bias: Tensor | None) -> Any:
    return out if out is NotImplemented or bias is None else out + bias


def _flip(weight: Any, *dimensions: int) -> Any:
    swaps_last = not dimensions or {each % weight.dim() for each in dimensions} == {weight.dim() - 2, weight.dim() - 1}
    return weight.flipped() if swaps_last else NotImplemented


def _item(weight: Any, index: Any) -> Any:
    is_number = isinstance(index, int) or (isinstance(index, Tensor) and index.dim() == 0 and index.dtype != torch.bool)
    return weight.matrices[int(index)] if isinstance(weight, QuantExperts) and is_number else NotImplemented


def _matrices(weight: Any, dim: int = 0) -> Any:
    return weight.matrices if isinstance(weight, QuantExperts) and dim == 0 else NotImplemented


OPERATIONS: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "matmul": _matmul, "__matmul__": _matmul, "mm": _matmul, "bmm": _matmul, "addmm": _addmm,
    "T": _flip, "mT": _flip, "t": _flip, "transpose": _flip, "swapaxes": _flip,
    "__getitem__": _item, "unbind": _matrices,
    "__iter__": lambda weight: iter(weight.matrices) if isinstance(weight, QuantExperts) else NotImplemented,
}  # fmt: skip


def _as_floats(value: Any) -> Any:
    """The numbers of weights that have no product here; other values as they are."""
    if isinstance(value, QuantWeight):
        value.uses.note(value.weight_name, FLOAT)
        return value.dequantized()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_floats, value))
    return value
