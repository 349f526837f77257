"""What happens between the products of a layer: norms, gates, turns, and the mix of what was looked at.

`Composed` is torch's own operations, on any device. `Compiled` is the kernels of `native_ops.cpp`, for the few rows of a
decoding pass on a CPU; what they are not made for it leaves to the other. Both compute what the Llama family computes;
what they round otherwise is a unit in the last place. Knows tensors and rows of a cache; knows no weight by name.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVLocation
from specchat.forward.attention import additive_mask, apply_rope, attention, sdpa
from specchat.forward.batch import ForwardBatch
from specchat.forward.native_ops import DTYPE_NAMES, NativeKernels, data_pointer, native_kernels

NATIVE_MAX_ROWS_SINGLE_THREAD, NATIVE_MIN_ROWS = (
    512,
    32,
)  # of one thread; more threads share out fewer rows sooner, but never a tree of guesses
NATIVE_MAX_SCORES = 2**13  # of all heads; from here on torch's attention is as quick, and then quicker
NATIVE_MAX_EXACT_SCORES = 2**16  # of all heads and one row: torch's would have to take rows in blocks
NATIVE_MAX_HEAD_SIZE = 512  # that the kernels have room for

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # what a different order of sums may change

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttentionDimensions:
    """How attention is cut up, and what norms add to a mean square."""

    heads: int
    kv_heads: int
    head_size: int
    epsilon: float


@dataclass(frozen=True)
class QKVInputs:
    """What a layer's attention begins with: queries, keys and values of every row, and how they are turned."""

    qkv: Tensor  # [N, (heads + 2 kv_heads) * size]
    q_norm: Tensor | None  # [size]
    k_norm: Tensor | None
    cos: Tensor  # [N, 1, size]
    sin: Tensor  # as cosine; its first half is negative


class TorchOps:
    """By torch's own operations, on any device."""

    def __init__(self, dimensions: AttentionDimensions) -> None:
        self.dimensions = dimensions

    def rms_norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        """RMS norm over the last numbers. [N, D]"""
        return functional.rms_norm(rows, weight.shape, weight, self.dimensions.epsilon)

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The sum, and its norm. [N, D] each"""
        rows = rows + residual
        return rows, self.rms_norm(rows, weight)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        """silu of the first half of every row, times the second. [N, 2 inner] -> [N, inner]"""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def is_batch_invariant(self, _kv_length: int) -> bool:
        """Whether a row that looks at so many keys is mixed alike, to the bit, whatever other rows there are."""
        return False

    def attention(self, inputs: QKVInputs, batch: ForwardBatch, layer: int, window: int | None) -> Tensor:
        """Write keys and values of the rows, and mix what they see of a layer. [N, heads * size]"""
        heads = self.dimensions
        states = inputs.qkv.view(len(inputs.qkv), -1, heads.head_size)
        queries, keys, values = states.split((heads.heads, heads.kv_heads, heads.kv_heads), dim=1)
        both = states[:, : heads.heads + heads.kv_heads]
        if inputs.q_norm is not None and inputs.k_norm is not None:
            norms = ((queries, inputs.q_norm), (keys, inputs.k_norm))  # of heads, which kernels do while they turn
            both = torch.cat([TorchOps.rms_norm(self, each, weight) for each, weight in norms], dim=1)
        queries, keys = apply_rope(both, inputs.cos, inputs.sin).split((heads.heads, heads.kv_heads), dim=1)
        keys, values = batch.write_kv(layer, keys.transpose(0, 1)[None], values.transpose(0, 1)[None])
        return attention(queries, keys, values, batch.masks[window])


class NativeOps(TorchOps):
    """By compiled kernels, where rows are few; else by torch. All numbers have one dtype."""

    def __init__(self, dimensions: AttentionDimensions, native: NativeKernels, dtype: torch.dtype) -> None:
        super().__init__(dimensions)
        made = [native.kernel(name, dtype) for name in ("norm", "add", "gate", "turn", "attend")]
        self._rms_norm, self._add_rms_norm, self._silu_and_mul, self._qk_norm_rope, self._attention = (
            each for each in made if each is not None
        )

    def rms_norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        if len(rows) > max_native_rows():
            return super().rms_norm(rows, weight)
        out = torch.empty_like(rows)
        self._rms_norm(rows.data_ptr(), weight.data_ptr(), out.data_ptr(), *rows.shape, self.dimensions.epsilon)
        return out

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        if len(rows) > max_native_rows():
            return super().add_rms_norm(rows, residual, weight)
        residual = residual.contiguous()
        total, out = torch.empty_like(rows), torch.empty_like(rows)
        self._add_rms_norm(
            rows.data_ptr(), residual.data_ptr(), weight.data_ptr(), total.data_ptr(), out.data_ptr(),
            *rows.shape, self.dimensions.epsilon,
        )  # fmt: skip
        return total, out

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        if len(gate_up) > max_native_rows():
            return super().silu_and_mul(gate_up)
        gate_up = gate_up.contiguous()
        count, inner = gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(count, inner)
        self._silu_and_mul(gate_up.data_ptr(), out.data_ptr(), count, inner)
        return out

    def is_batch_invariant(self, kv_length: int) -> bool:
        return self.dimensions.heads * kv_length <= NATIVE_MAX_EXACT_SCORES

    def attention(self, inputs: QKVInputs, batch: ForwardBatch, layer: int, window: int | None) -> Tensor:
        states, heads, mask, place = inputs.qkv.contiguous(), self.dimensions, batch.masks[window], batch.kv_location
        count, shared = len(states), heads.heads // heads.kv_heads
        if count > max_native_rows() or place is None:
            return super().attention(inputs, batch, layer, window)
        keys, values, first, width = place(layer)
        begin, stride = first * heads.head_size * keys.element_size(), keys.stride(1)
        queries = states.new_empty(heads.heads, count, heads.head_size)
        self._qk_norm_rope(
            states.data_ptr(), data_pointer(inputs.q_norm), data_pointer(inputs.k_norm),
            inputs.cos.data_ptr(), inputs.sin.data_ptr(), queries.data_ptr(),
            keys.data_ptr() + begin, values.data_ptr() + begin,
            count, heads.heads, heads.kv_heads, heads.head_size, stride, heads.epsilon,
        )  # fmt: skip
        if heads.heads * count * width > NATIVE_MAX_SCORES and not batch.is_batch_invariant:
            rows = queries.view(1, heads.kv_heads, -1, heads.head_size)
            mix = sdpa(rows, keys[:, :, :width], values[:, :, :width], mask)
            return mix.view(heads.heads, count, heads.head_size).transpose(0, 1).reshape(count, -1)
        out = states.new_empty(count, heads.heads * heads.head_size)
        room = torch.empty(shared * count * (2 * heads.head_size + width))
        self._attention(
            queries.data_ptr(), keys.data_ptr(), values.data_ptr(), data_pointer(mask),
            out.data_ptr(), count, heads.heads, heads.kv_heads, heads.head_size, stride, width, room.data_ptr(),
        )  # fmt: skip
        return out


def max_native_rows() -> int:
    """Up to how many rows one thread is done before as many as compute are awake, and have shared them out."""
    return max(NATIVE_MAX_ROWS_SINGLE_THREAD // torch.get_num_threads(), NATIVE_MIN_ROWS)


def select_fused_ops(dimensions: AttentionDimensions, like: Tensor) -> TorchOps:
    """The quickest there is for numbers like these, where they are."""
    if like.device.type != "cpu" or like.dtype not in DTYPE_NAMES or dimensions.head_size > NATIVE_MAX_HEAD_SIZE:
        return TorchOps(dimensions)
    found = native_kernels()
    if found.library is None:
        return TorchOps(dimensions)
    compiled = NativeOps(dimensions, found, like.dtype)
    if not matches_torch(compiled, like.dtype):
        log.warning("the compiled kernels compute otherwise than torch, and are not used")
        return TorchOps(dimensions)
    return compiled


@torch.inference_mode()
def matches_torch(native_ops: NativeOps, dtype: torch.dtype) -> bool:
    """Whether the kernels say what torch says of a few rows: compilers have been wrong, and files been broken."""
    ours, theirs, near = (
        _sample_outputs(native_ops, dtype),
        _sample_outputs(TorchOps(native_ops.dimensions), dtype),
        TOLERANCE[dtype],
    )
    return all(torch.allclose(our, their, near, near) for our, their in zip(ours, theirs, strict=True))


def _sample_outputs(ops: TorchOps, dtype: torch.dtype) -> list[Tensor]:
    """All that is computed of three rows behind five sure ones."""
    heads, first, count, width = ops.dimensions, 5, 3, 64
    keys, values = _test_tensor(dtype, 2, 1, heads.kv_heads, 16, heads.head_size)
    mask = additive_mask(torch.ones(count, first + count).tril_(first).bool(), heads.heads // heads.kv_heads, keys)

    def write(_layer: int, new_keys: Tensor, new_values: Tensor) -> tuple[Tensor, Tensor]:
        end = first + count
        keys[:, :, first:end], values[:, :, first:end] = new_keys, new_values
        return keys[:, :, :end], values[:, :, :end]

    places = torch.arange(count)
    laid = ForwardBatch(
        places, places, {None: mask}, write, lambda _layer: KVLocation(keys, values, first, first + count)
    )
    turn, norm = _test_tensor(dtype, count, 1, heads.head_size), _test_tensor(dtype, heads.head_size)
    states = _test_tensor(dtype, count, (heads.heads + 2 * heads.kv_heads) * heads.head_size)
    mix = ops.attention(QKVInputs(states, norm, norm, turn, turn), laid, 0, None)
    rows, weight = _test_tensor(dtype, count, width), _test_tensor(dtype, width)
    return [
        mix,
        keys,
        values,
        ops.rms_norm(rows, weight),
        *ops.add_rms_norm(rows, rows, weight),
        ops.silu_and_mul(rows),
    ]


def _test_tensor(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.arange(math.prod(shape)).float().sin_().view(shape).to(dtype)
