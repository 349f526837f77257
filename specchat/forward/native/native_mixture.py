"""Linear layers and mixtures of experts as native kernels read them; `native_mixture.cpp` computes one in a call.

Its bits are those of the experts one by one, but for the softmax of the router. Knows tensors; knows no file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.forward.linear.linear import Linear, NativeLinear
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.llama.variations import GELU_TANH, Activation, SwiGluClamp
from specchat.forward.native.native_ops import Kernel, check_border, data_pointer, native_kernels

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64


class LinearLayer(ctypes.Structure):
    """The structures of `native_stack.h`, which explains their fields."""

    _fields_ = (
        ("parts", _POINTER), ("part_count", _INT64), ("floats", _POINTER), ("bias", _POINTER),
        *((name, _INT64) for name in ("inputs", "padded_inputs", "outputs")),
    )  # fmt: skip


class _Mixture(ctypes.Structure):
    _fields_ = (
        ("router", LinearLayer),
        *((name, ctypes.POINTER(LinearLayer)) for name in ("gate_up", "down")),  # these keep their tables alive
        *((name, _INT64) for name in ("experts", "chosen", "has_float32_router", "is_normalized", "is_gelu")),
    )


STRUCTURES = (LinearLayer, _Mixture)  # in the order of `mixture_bytes`


@dataclass(frozen=True)
class NativeMixture:
    """The experts of a layer and their router. Their tensors belong to the layer, which must live as long."""

    mixture: _Mixture
    kernel: Kernel

    @classmethod
    def of(
        cls, router: Linear, gate_up: Sequence[Linear], down: Sequence[Linear], chosen: int, is_normalized: bool,
        activation: Activation, dtype: torch.dtype,
    ) -> NativeMixture | None:  # fmt: skip
        """For rows of a dtype; None where the kernel does not know a part, or where sizes differ."""
        kernel, experts = native_kernels().kernel("mixture_of_experts", dtype), (*gate_up, *down)
        if kernel is None or isinstance(activation, SwiGluClamp) or not isinstance(router, NativeLinear):
            return None
        count, size, is_wide = router.out_features, router.in_features, router.weight.dtype == torch.float32
        sizes = [(each.in_features, each.out_features) for each in experts if isinstance(each, PackedLinear)]
        inner = sizes[-1][0] if sizes else 0
        layers = [linear_layer(router, torch.float32 if is_wide else dtype)]
        layers += [linear_layer(each, dtype) for each in experts]
        if None in layers or sizes != [(size, 2 * inner)] * count + [(inner, size)] * count or chosen > count:
            return None
        tables = (LinearLayer * count)(*layers[1 : count + 1]), (LinearLayer * count)(*layers[count + 1 :])
        rules = count, chosen, is_wide, is_normalized, activation == GELU_TANH
        return cls(_Mixture(layers[0], *tables, *rules), kernel)

    @property
    def address(self) -> int:
        """Of the `Mixture` for kernels."""
        return ctypes.addressof(self.mixture)

    def __call__(self, rows: Tensor) -> Tensor:
        """The weighted sum of the outputs of the experts that are chosen for a row. [N, D] -> [N, D]"""
        check_border("mixture_of_experts", rows, (rows, (len(rows), self.mixture.router.inputs)))
        rows, out = rows.contiguous(), torch.empty(rows.shape, dtype=rows.dtype)
        self.kernel(rows.data_ptr(), self.address, out.data_ptr(), len(rows), torch.get_num_threads())
        return out


def linear_layer(linear: Linear, dtype: torch.dtype) -> LinearLayer | None:
    """None for a layer that is multiplied otherwise."""
    if not isinstance(linear, PackedLinear | NativeLinear):
        return None
    if linear.bias is not None and linear.bias.dtype != dtype:
        return None
    bias, sizes = data_pointer(linear.bias), (linear.in_features, linear.padded_inputs, linear.out_features)
    if isinstance(linear, PackedLinear):
        parts = ctypes.addressof(linear.part_table), len(linear.parts)
        return LinearLayer(*parts, None, bias, *sizes) if dtype in linear.kernels else None
    return LinearLayer(None, 0, linear.weight.data_ptr(), bias, *sizes) if linear.weight.dtype == dtype else None
