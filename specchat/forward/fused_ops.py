"""The operations between the matmuls of a Llama layer: RMS norm, SwiGLU, GeGLU, RoPE and attention.

`TorchOps` uses torch, on any device. `NativeOps` uses the kernels of `native_*.cpp` on a CPU, for any number of rows: a
prompt may be read in any pieces, and its rows must have the bits of decoding. `TritonOps` (`triton_ops.py`) has the
kernels for CUDA. The results differ by rounding in the last place. Knows tensors and rows of a KV cache; knows no
weight by name.
"""

import logging
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from specchat.devices import kind_of
from specchat.engine.cache import KVCache, KVLayout, KVLocation, Slot
from specchat.engine.cache_sizes import SCALE_BYTES
from specchat.engine.int8_rows import dequantize_rows
from specchat.forward.attention import AttentionMask, Scores, apply_rope, attention
from specchat.forward.batch import CacheRows, ForwardBatch, ancestor_masks
from specchat.forward.cuda.kernel_trial import triton_module
from specchat.forward.linear.linear import TOLERANCE, sample_tensor
from specchat.forward.llama.variations import GELU_TANH, SILU, Activation, Scaling, SwiGluClamp
from specchat.forward.native.native_ops import (
    DTYPE_NAMES,
    NativeBorderError,
    NativeKernels,
    check_border,
    data_pointer,
    native_kernels,
)

NATIVE_MAX_HEAD_SIZE = 512  # MAX_HEAD_SIZE of the kernels
NATIVE_KERNELS = (
    "rms_norm", "add_rms_norm", "silu_and_mul", "gelu_and_mul", "clamped_swiglu", "sigmoid_gate", "soft_cap",
    "qk_norm_rope", "attention", "qk_norm_rope_int8", "attention_int8",
)  # fmt: skip
INT8_TOLERANCE = 0.02  # two steps of a KV cache in 8 bits
CPU = torch.device("cpu")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttentionDimensions:
    heads: int
    kv_heads: int
    head_size: int
    epsilon: float
    scaling: Scaling = Scaling()
    has_sinks: bool = False
    normalizes_values: bool = False  # by an RMS norm without a weight

    @property
    def scores(self) -> Scores:
        scale = self.scaling.attention
        return Scores(self.head_size**-0.5 if scale is None else scale, self.scaling.attention_cap)


@dataclass(frozen=True)
class QKVInputs:
    """Projected queries, keys and values of every row, and what is applied to them before attention."""

    qkv: Tensor  # [N, (heads + 2 kv_heads) * size]; queries alone [N, heads * size] where no keys are written
    q_norm: Tensor | None  # [size]
    k_norm: Tensor | None
    cos: Tensor  # [N, 1, rotary size]
    sin: Tensor  # as `cos`; the first half is negative
    sinks: Tensor | None = None  # [heads]: a score of each head that takes its share of the softmax and has no value
    writes_kv: bool = True  # False: the layer reads the keys and values that an earlier layer wrote in this pass


@dataclass(frozen=True)
class QKV:
    queries: Tensor  # [N, heads, key size]
    keys: Tensor  # [N, KV, key size]
    values: Tensor  # [N, KV, value size]

    @property
    def cache_rows(self) -> tuple[Tensor, Tensor]:
        """Keys and values in the layout of the KV cache. [1, KV, N, size] each"""
        return self.keys.transpose(0, 1)[None], self.values.transpose(0, 1)[None]


class TorchOps:
    is_batch_invariant: ClassVar[bool] = False  # a row has the same bits whatever other rows are in the pass
    reads_cache_rows: ClassVar[bool] = False  # `ForwardBatch.cache_rows`

    def __init__(self, dimensions: AttentionDimensions) -> None:
        self.dimensions = dimensions

    def rms_norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        """RMS norm over the last dimension. [N, D] or [N, parts, D]"""
        if self.dimensions.scaling.norms_add_one:  # 1 + weight in float32: bfloat16 would round it
            normed = functional.rms_norm(rows.float(), weight.shape, weight.float() + 1.0, self.dimensions.epsilon)
            return normed.to(rows.dtype)
        return functional.rms_norm(rows, weight.shape, weight, self.dimensions.epsilon)

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The sum, and its RMS norm. [N, D] each"""
        rows = rows + residual
        return rows, self.rms_norm(rows, weight)

    def activate_and_mul(self, gate_up: Tensor, activation: Activation = SILU) -> Tensor:
        """activation(first half) * second half: SwiGLU, GeGLU with tanh, or as `SwiGluClamp` says. -> [N, inner]"""
        gate, up = gate_up.chunk(2, dim=-1)
        if isinstance(activation, SwiGluClamp):
            gate, limit = gate.clamp(max=activation.limit), activation.limit
            return gate * torch.sigmoid(activation.alpha * gate) * (1 + up.clamp(-limit, limit))
        return (functional.silu(gate) if activation == SILU else functional.gelu(gate, approximate="tanh")) * up

    def sigmoid_gate(self, rows: Tensor, gates: Tensor) -> Tensor:
        """rows * sigmoid(gates). [N, D] each"""
        return rows * gates.sigmoid()

    def soft_cap(self, rows: Tensor, cap: float) -> Tensor:
        """cap * tanh(row / cap). [N, V]"""
        return cap * torch.tanh(rows / cap)

    def qk_norm_rope(self, inputs: QKVInputs) -> QKV:
        """Split the projection into heads, normalize queries and keys, and rotate them."""
        heads, kv_heads = self.dimensions.heads, self.dimensions.kv_heads if inputs.writes_kv else 0
        states = inputs.qkv.view(len(inputs.qkv), -1, self.dimensions.head_size)
        queries, keys, values = states.split((heads, kv_heads, kv_heads), dim=1)
        queries_and_keys = states[:, : heads + kv_heads]
        if inputs.q_norm is not None or inputs.k_norm is not None:
            norms = ((queries, inputs.q_norm), (keys, inputs.k_norm))
            parts = [each if weight is None else TorchOps.rms_norm(self, each, weight) for each, weight in norms]
            queries_and_keys = torch.cat(parts, dim=1)
        queries, keys = apply_rope(queries_and_keys, inputs.cos, inputs.sin).split((heads, kv_heads), dim=1)
        if self.dimensions.normalizes_values:
            values = functional.rms_norm(values, values.shape[-1:], None, self.dimensions.epsilon)
        return QKV(queries, keys, values)

    def attention(self, inputs: QKVInputs, batch: ForwardBatch, layer: int, window: int | None) -> Tensor:
        """Write keys and values of the rows to the KV cache, and attend to the visible ones. [N, heads * size]"""
        qkv = self.qk_norm_rope(inputs)
        if inputs.writes_kv:
            keys, values = batch.write_kv(layer, *qkv.cache_rows)
        else:
            assert batch.read_kv is not None, "a pass that cannot read the rows of another layer"
            keys, values = batch.read_kv(layer)
        return attention(qkv.queries, keys, values, batch.masks[window], self.dimensions.scores, inputs.sinks)


class NativeOps(TorchOps):
    """Implemented with compiled kernels where the rows of the KV cache have an address. All tensors have one dtype."""

    is_batch_invariant = True

    def __init__(self, dimensions: AttentionDimensions, native: NativeKernels, dtype: torch.dtype) -> None:
        super().__init__(dimensions)
        ones = torch.full((dimensions.head_size,), 1.0 - dimensions.scaling.norms_add_one, dtype=dtype)
        self.v_norm = ones if dimensions.normalizes_values else None
        self.kernels = {name: native.require_kernel(name, dtype) for name in NATIVE_KERNELS}
        self._lanes, self.norm_offset, self.dtype = native.lanes, float(dimensions.scaling.norms_add_one), dtype

    def rms_norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        rows, size = rows.contiguous(), rows.shape[-1]
        check_border("rms_norm", rows, (weight, (size,)))
        out = torch.empty_like(rows)
        self.kernels["rms_norm"](
            rows.data_ptr(), weight.data_ptr(), out.data_ptr(), rows.numel() // size, size,
            self.dimensions.epsilon, self.norm_offset,
        )  # fmt: skip
        return out

    def add_rms_norm(self, rows: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        rows, residual = rows.contiguous(), residual.contiguous()
        check_border("add_rms_norm", rows, (weight, rows.shape[1:]), (residual, rows.shape))
        total, out = torch.empty_like(rows), torch.empty_like(rows)
        self.kernels["add_rms_norm"](
            rows.data_ptr(), residual.data_ptr(), weight.data_ptr(), total.data_ptr(), out.data_ptr(),
            *rows.shape, self.dimensions.epsilon, self.norm_offset,
        )  # fmt: skip
        return total, out

    def activate_and_mul(self, gate_up: Tensor, activation: Activation = SILU) -> Tensor:
        gate_up, count, inner = gate_up.contiguous(), gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(count, inner)
        name, settings = "silu_and_mul" if activation == SILU else "gelu_and_mul", ()
        if isinstance(activation, SwiGluClamp):
            name, settings = "clamped_swiglu", (activation.alpha, activation.limit)
        self.kernels[name](gate_up.data_ptr(), out.data_ptr(), count, inner, *settings)
        return out

    def sigmoid_gate(self, rows: Tensor, gates: Tensor) -> Tensor:
        rows, gates = rows.contiguous(), gates.contiguous()
        check_border("sigmoid_gate", rows, (gates, rows.shape))
        out = torch.empty_like(rows)
        self.kernels["sigmoid_gate"](rows.data_ptr(), gates.data_ptr(), out.data_ptr(), *rows.shape)
        return out

    def soft_cap(self, rows: Tensor, cap: float) -> Tensor:
        rows = rows.contiguous()
        out = torch.empty_like(rows)
        self.kernels["soft_cap"](rows.data_ptr(), out.data_ptr(), *rows.shape, cap)
        return out

    def attention(self, inputs: QKVInputs, batch: ForwardBatch, layer: int, window: int | None) -> Tensor:
        states, sizes, mask = inputs.qkv.contiguous(), self.dimensions, batch.masks[window]
        count = len(states)
        if batch.kv_location is None:
            return super().attention(inputs, batch, layer, window)
        location = batch.kv_location(layer)
        self._check_attention(inputs, states, mask, location)
        keys, values, first_row, kv_length = location
        offset, stride = first_row * keys.shape[3] * keys.element_size(), keys.stride(1)
        suffix = "_int8" if keys.dtype == torch.int8 else ""
        queries = states.new_empty(sizes.heads, count, sizes.head_size)
        written_heads = sizes.kv_heads if inputs.writes_kv else 0
        self.kernels[f"qk_norm_rope{suffix}"](
            states.data_ptr(), data_pointer(inputs.q_norm), data_pointer(inputs.k_norm), data_pointer(self.v_norm),
            inputs.cos.data_ptr(), inputs.sin.data_ptr(), queries.data_ptr(),
            keys.data_ptr() + offset, values.data_ptr() + offset,
            count, sizes.heads, written_heads, sizes.head_size, inputs.cos.shape[-1], stride, sizes.epsilon,
            self.norm_offset,
        )  # fmt: skip
        scores = sizes.scores
        out = states.new_empty(count, sizes.heads * sizes.head_size)
        self.kernels[f"attention{suffix}"](
            queries.data_ptr(), keys.data_ptr(), values.data_ptr(), data_pointer(mask.allowed if mask else None),
            out.data_ptr(), count, sizes.heads, sizes.kv_heads, sizes.head_size, stride, kv_length,
            torch.get_num_threads(), scores.scale, scores.cap or 0.0, data_pointer(inputs.sinks),
        )  # fmt: skip
        return out

    def check_cache(self, keys: Tensor, values: Tensor) -> None:
        """NativeBorderError where these are not the rows of a layer as kernels read them."""
        sizes, is_int8 = self.dimensions, keys.dtype == torch.int8
        shape = (1, sizes.kv_heads, keys.shape[2], sizes.head_size + SCALE_BYTES * is_int8)
        if not (
            keys.shape == shape == values.shape and keys.dtype == values.dtype and keys.stride() == values.stride()
        ):
            raise NativeBorderError(f"attention: keys {list(keys.shape)} and values {list(values.shape)}")
        if not (is_int8 or keys.dtype == self.dtype) or keys.stride()[2:] != (shape[3], 1):
            raise NativeBorderError(f"attention: keys of {keys.dtype} with strides {keys.stride()}")

    def check_location(self, location: KVLocation, count: int) -> None:
        """NativeBorderError where a pass over so many rows would read or write beyond the cache."""
        keys, _values, first_row, kv_length = location
        if not 0 <= first_row <= first_row + count <= kv_length <= keys.shape[2]:
            raise NativeBorderError(
                f"attention: {count} rows at {first_row} of {kv_length} in a cache of {keys.shape[2]}"
            )

    def check_angles(self, rows: Tensor, cos: Tensor, sin: Tensor) -> None:
        """NativeBorderError where these are not the angles of the rows."""
        rotary = cos.shape[-1]
        check_border("attention", rows, *((each, (len(rows), 1, rotary)) for each in (cos, sin)))
        if rotary % 2 or rotary > self.dimensions.head_size:
            raise NativeBorderError(f"attention: {rotary} numbers of {self.dimensions.head_size} are rotated")

    def _check_attention(
        self, inputs: QKVInputs, states: Tensor, mask: AttentionMask | None, location: KVLocation
    ) -> None:
        sizes, count = self.dimensions, len(states)
        self.check_cache(location.keys, location.values)
        self.check_location(location, count)
        self.check_angles(states, inputs.cos, inputs.sin)
        written_heads = sizes.kv_heads if inputs.writes_kv else 0
        check_border("attention", states, (states, (count, (sizes.heads + 2 * written_heads) * sizes.head_size)))
        check_border("attention", states, *((norm, (sizes.head_size,)) for norm in (inputs.q_norm, inputs.k_norm)))
        check_border("attention", states, (inputs.sinks, (sizes.heads,)))
        if mask is not None and mask.allowed.shape != (count, location.kv_length):
            raise NativeBorderError(f"attention: a mask of {list(mask.allowed.shape)} for {count} rows")


def select_fused_ops(dimensions: AttentionDimensions, like: Tensor) -> TorchOps:
    """The fastest implementation for the dtype and the device of `like`."""
    if (kernels := triton_module("triton_ops", like.device)) is not None:
        return kernels.triton_ops(dimensions, like.dtype, like.device) or TorchOps(dimensions)
    if kind_of(like.device).is_gpu or like.dtype not in DTYPE_NAMES or dimensions.head_size > NATIVE_MAX_HEAD_SIZE:
        return TorchOps(dimensions)
    native = native_kernels()
    if native.library is None:
        return TorchOps(dimensions)
    native_ops = NativeOps(dimensions, native, like.dtype)
    if not all(matches_torch(native_ops, like.dtype, is_int8=each) for each in (False, True)):
        log.warning("the native kernels give other results than torch, and are not used")
        return TorchOps(dimensions)
    return native_ops


@torch.inference_mode()
def matches_torch(ops: TorchOps, dtype: torch.dtype, device: torch.device = CPU, *, is_int8: bool = False) -> bool:
    """Whether the kernels compute the results of torch for a few rows; compiler errors and broken files exist.

    With `is_int8`, over a KV cache in 8 bits, where numbers that differ in the last place may be one step apart.
    """
    tolerance = max(TOLERANCE[dtype], INT8_TOLERANCE if is_int8 else 0.0)
    expected = _sample_outputs(TorchOps(ops.dimensions), dtype, device, is_int8=is_int8)
    ours = _sample_outputs(ops, dtype, device, is_int8=is_int8)
    return all(torch.allclose(one, other, tolerance, tolerance) for one, other in zip(ours, expected, strict=True))


def _sample_outputs(ops: TorchOps, dtype: torch.dtype, device: torch.device, *, is_int8: bool) -> list[Tensor]:
    """The results of all operations for three rows that follow five committed ones."""
    sizes, first, count, width = ops.dimensions, 5, 3, 64
    end = first + count

    def sample(*shape: int) -> Tensor:
        return sample_tensor(dtype, *shape).to(device)

    layout = KVLayout(((sizes.kv_heads, sizes.head_size, sizes.head_size),), dtype, device, is_int8)
    cache, kv_shape = KVCache(), (1, sizes.kv_heads, first, sizes.head_size)
    cache.slot = Slot(layout, 16)
    cache.write(0, sample(*kv_shape), sample(*kv_shape))
    cache.length = first
    keys, values = cache.slot.layers[0]
    allowed = torch.ones(count, end).tril_(first).bool()
    mask = AttentionMask(allowed, sizes.heads // sizes.kv_heads, sample(1))
    zero = torch.zeros((), dtype=torch.long, device=device)
    ancestors = ancestor_masks(allowed[:, first:]).to(device)

    positions = torch.arange(count)
    cache_rows = CacheRows(lambda _layer: (keys, values), zero, zero + first, ancestors, end)
    kv_location = partial(cache.kv_location, kv_length=end)
    batch = ForwardBatch(positions, {None: mask}, cache.write, kv_location, cache_rows)
    cos, norm = sample(count, 1, sizes.head_size), sample(sizes.head_size)
    qkv = sample(count, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_size)
    sinks = sample(sizes.heads) if sizes.has_sinks else None
    attention_output = ops.attention(QKVInputs(qkv, norm, norm, cos, cos, sinks), batch, 0, None)
    rows, weight = sample(count, width), sample(width)
    activated = [ops.activate_and_mul(4 * rows, each) for each in (SILU, GELU_TANH, SwiGluClamp(2, 3))]
    activated.append(ops.sigmoid_gate(rows, 4 * rows))
    norms = (ops.rms_norm(rows, weight), *ops.add_rms_norm(rows, rows, weight))
    stored = [dequantize_rows(each, dtype) if is_int8 else each for each in (keys, values)]
    return [attention_output, *stored, *norms, *activated, ops.soft_cap(20 * rows, 10.0)]
