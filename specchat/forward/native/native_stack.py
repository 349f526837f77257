"""Decoder layers in one call of a native kernel, where all of their operations are native kernels anyway.

`native_stack.cpp` calls the kernels in the order of `decoder_layer.py`, so it computes the same bits. In a small
network the calls from Python take nearly as long as the kernels. Layers with other parts (recurrences, gates, linear
layers of torch, experts in floats) are left to `DecoderStack`. Knows tensors; knows no file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import Slot
from specchat.forward.batch import ForwardBatch, ForwardDepth, HiddenStates
from specchat.forward.fused_ops import NativeOps, TorchOps
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.decoder_layer import (
    Attention,
    AttentionKind,
    DecoderLayer,
    DecoderStack,
    GatedMlp,
    PerLayerInput,
    RopeAngles,
)
from specchat.forward.llama.moe import MixtureOfExperts
from specchat.forward.llama.variations import GELU_TANH, SwiGluClamp
from specchat.forward.native.native_mixture import LinearLayer, linear_layer
from specchat.forward.native.native_ops import Kernel, NativeBorderError, check_border, data_pointer, native_kernels

_POINTER, _INT64, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_NOT_NATIVE = "`_is_native` would have said no"


class _AttentionKind(ctypes.Structure):
    """The structures of `native_stack.cpp`, which explains their fields."""

    _fields_ = (
        *((name, _INT64) for name in ("heads", "kv_heads", "size")),
        *((name, _DOUBLE) for name in ("epsilon", "norm_offset", "scale", "cap")),
        ("v_norm", _POINTER),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((f"{name}_norm", _POINTER) for name in ("input", "attention_output", "mlp", "mlp_output", "q", "k")),
        ("sinks", _POINTER),
        *((name, LinearLayer) for name in ("qkv", "attention_output", "gate_up", "down")),
        *((name, _INT64) for name in ("kind", "window", "kv_layer", "writes_kv", "is_gelu")),
        ("mixture", _POINTER),
    )


class _Stack(ctypes.Structure):
    _fields_ = (
        ("layers", _POINTER), ("kinds", _POINTER), ("hidden_size", _INT64), ("epsilon", _DOUBLE),
        ("norm_offset", _DOUBLE), ("norm", _POINTER),
    )  # fmt: skip


class _Segment(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.POINTER(_POINTER)) for name in ("masks", "keys", "values")),  # these keep their tables alive
        ("strides", ctypes.POINTER(_INT64)),
        *((name, _INT64) for name in ("count", "kv_length", "first_row", "is_int8")),
    )


class _Pass(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("rows", "attention_input", "out", "selected", "selected_layers")),
        *((name, _INT64) for name in ("selected_count", "count", "layer_count")),
        *((name, _POINTER) for name in ("rotary", "cos", "sin", "segments")),
        *((name, _INT64) for name in ("segment_count", "threads")),
    )


STRUCTURES = (_Layer, _AttentionKind, _Stack, _Segment, _Pass)  # in the order of `stack_bytes`


@dataclass(frozen=True)
class CacheAddresses:
    """Where the rows of a slot lie, by layer."""

    keys: ctypes.Array[ctypes.c_void_p]
    values: ctypes.Array[ctypes.c_void_p]
    strides: ctypes.Array[ctypes.c_int64]  # numbers between two heads
    is_int8: bool


class NativeProgram:
    """The layers of a stack as the kernel reads them. Their tensors belong to the stack, which must live as long."""

    def __init__(self, stack: DecoderStack, kinds: Sequence[NativeOps], kernel: Kernel) -> None:
        self._kinds, self._kernel, self._dtype = kinds, kernel, kinds[0].dtype
        self._ropes = [kind.rope for kind in stack.attention_kinds]
        self._windows = list(dict.fromkeys(layer.sliding_window for layer in stack.layers))
        self._layers = (_Layer * len(stack.layers))(
            *(self._layer(index, layer) for index, layer in enumerate(stack.layers))
        )
        self._ops_by_kv_layer = {layer.kv_layer: kinds[layer.kind] for layer in self._layers}
        self._attention_kinds = (_AttentionKind * len(kinds))(*map(_attention_kind, kinds))
        self.hidden_size, self.input_size = self._layers[0].attention_output.outputs, self._layers[0].qkv.inputs
        self._stack = _Stack(
            ctypes.addressof(self._layers), ctypes.addressof(self._attention_kinds), self.hidden_size,
            stack.ops.dimensions.epsilon, kinds[0].norm_offset, data_pointer(stack.norm),
        )  # fmt: skip
        self._check_norms((stack.norm,), self.hidden_size)
        self._addresses: WeakKeyDictionary[Slot, CacheAddresses] = WeakKeyDictionary()

    @classmethod
    def of(cls, stack: DecoderStack) -> NativeProgram | None:
        """None where an operation of the stack is not a native kernel."""
        kinds = [kind.ops for kind in stack.attention_kinds if isinstance(kind.ops, NativeOps)]
        if len(kinds) < len(stack.attention_kinds) or not isinstance(stack.ops, NativeOps):
            return None
        if stack.per_layer_input is not None or not all(_is_native(each, kinds[0].dtype) for each in stack.layers):
            return None
        kernel = native_kernels().kernel("decoder_stack", kinds[0].dtype)
        return cls(stack, kinds, kernel) if kernel is not None else None

    @property
    def address(self) -> int:
        """Of the `Stack` for kernels."""
        return ctypes.addressof(self._stack)

    def run(
        self, rows: Tensor, batches: Sequence[ForwardBatch], depth: ForwardDepth, attention_input: Tensor | None = None
    ) -> HiddenStates:
        """What `DecoderStack.forward` computes over rows of slots, for one text or several: each sees its own rows."""
        rows, positions = rows.contiguous(), batches[0].positions
        if len(batches) > 1:
            positions = torch.cat([batch.positions for batch in batches])
        attention_input = attention_input.contiguous() if attention_input is not None else None
        angles = [rope(positions) for rope in self._ropes]
        self._check(rows, attention_input, angles, len(positions))
        out, selected_layers = torch.empty_like(rows), depth.hidden_state_layers
        selected = rows.new_empty(len(rows), len(selected_layers) * self.hidden_size) if selected_layers else None
        tables = (
            (_INT64 * len(angles))(*(each.cos.shape[-1] for each in angles)),
            (_POINTER * len(angles))(*(each.cos.data_ptr() for each in angles)),
            (_POINTER * len(angles))(*(each.sin.data_ptr() for each in angles)),
            (_Segment * len(batches))(*map(self._segment, batches)),
        )  # fmt: skip
        layers = (_INT64 * len(selected_layers))(*selected_layers)
        native_pass = _Pass(
            rows.data_ptr(), data_pointer(attention_input), out.data_ptr(), data_pointer(selected),
            ctypes.addressof(layers), len(layers), len(rows), min(depth.layers, len(self._layers)),
            *map(ctypes.addressof, tables), len(batches), torch.get_num_threads(),
        )  # fmt: skip
        self._kernel(self.address, ctypes.addressof(native_pass))
        return HiddenStates(out, selected)

    def _segment(self, batch: ForwardBatch) -> _Segment:
        """The rows of one text; NativeBorderError where they would read or write beyond its masks or its cache."""
        assert batch.kv_slot is not None and batch.kv_location is not None, "a pass over keys without an address"
        count, location = len(batch.positions), batch.kv_location(0)
        for ops in self._kinds:
            ops.check_location(location, count)
        masks, shape = [batch.masks[window] for window in self._windows], (count, location.kv_length)
        if any(mask is not None and mask.allowed.shape != shape for mask in masks):
            raise NativeBorderError(f"decoder_stack: a mask does not have the shape {shape[0]} x {shape[1]}")
        table = (_POINTER * len(masks))(*(data_pointer(mask.allowed if mask else None) for mask in masks))
        cache = self.cache_addresses(batch.kv_slot)
        return _Segment(table, cache.keys, cache.values, cache.strides, *shape, location.first_new_row, cache.is_int8)

    def _layer(self, index: int, layer: DecoderLayer) -> _Layer:
        attention = layer.self_attn
        assert isinstance(attention, Attention) and isinstance(layer.mlp, GatedMlp | MixtureOfExperts), _NOT_NATIVE
        mixture = layer.mlp.native[self._dtype].address if isinstance(layer.mlp, MixtureOfExperts) else None
        norms = (
            layer.input_layernorm, layer.attention_output_norm, layer.post_attention_layernorm, layer.mlp_output_norm,
            attention.q_norm, attention.k_norm,
        )  # fmt: skip
        has_own_rows, is_gelu = attention.kv_source is None, layer.mlp.activation == GELU_TANH
        row = _Layer(
            *map(data_pointer, (*norms, attention.sinks)),
            *(linear_layer(each, self._dtype) for each in _linears(layer)),
            layer.attention_kind, self._windows.index(layer.sliding_window),
            index if has_own_rows else attention.kv_source, has_own_rows, is_gelu, mixture,
        )  # fmt: skip
        sizes, hidden_size = self._kinds[layer.attention_kind].dimensions, row.attention_output.outputs
        width, written = sizes.heads * sizes.head_size, 2 * sizes.kv_heads * sizes.head_size * has_own_rows
        inputs = hidden_size if index else row.qkv.inputs  # the first attention may read something else
        expected = [
            (inputs, width + written), (width, hidden_size), (hidden_size, 2 * row.down.inputs),
            (row.down.inputs, hidden_size),
        ]  # fmt: skip
        actual = [(each.inputs, each.outputs) for each in (row.qkv, row.attention_output, row.gate_up, row.down)]
        if actual != expected:
            raise NativeBorderError(f"decoder_stack: layer {index} has matrices of {actual}, not {expected}")
        self._check_norms(norms[:4], hidden_size)
        self._check_norms(norms[4:], sizes.head_size)
        return row

    def _check_norms(self, norms: Sequence[Tensor | None], size: int) -> None:
        like = torch.empty(0, dtype=self._dtype)
        check_border("decoder_stack", like, *((norm, (size,)) for norm in norms))

    def _check(self, rows: Tensor, attention_input: Tensor | None, angles: Sequence[RopeAngles], count: int) -> None:
        """NativeBorderError where the kernels would read or write beyond a tensor."""
        inputs = rows if attention_input is None else attention_input
        check_border("decoder_stack", rows, (rows, (count, self.hidden_size)), (inputs, (count, self.input_size)))
        for table, ops in zip(angles, self._kinds, strict=True):
            ops.check_angles(rows, table.cos, table.sin)

    def cache_addresses(self, slot: Slot) -> CacheAddresses:
        """They are those of the slot as long as it lives."""
        if (known := self._addresses.get(slot)) is not None:
            return known
        pairs = slot.layers
        for layer, ops in self._ops_by_kv_layer.items():
            ops.check_cache(*pairs[layer])
        keys, values = ((_POINTER * len(pairs))(*(pair[part].data_ptr() for pair in pairs)) for part in (0, 1))
        strides = (_INT64 * len(pairs))(*(keys.stride(1) for keys, _values in pairs))
        self._addresses[slot] = CacheAddresses(keys, values, strides, slot.layout.is_int8)
        return self._addresses[slot]


@dataclass(frozen=True)
class NativeStack(DecoderStack):
    """A stack whose passes over the rows of a slot are one call."""

    program: NativeProgram = field(kw_only=True)

    @torch.inference_mode()
    def forward(
        self, hidden_states: Tensor, batch: ForwardBatch, depth: ForwardDepth, attention_input: Tensor | None = None
    ) -> HiddenStates:
        if batch.kv_slot is None or batch.kv_location is None:
            return super().forward(hidden_states, batch, depth, attention_input)
        return self.program.run(hidden_states, [batch], depth, attention_input)


def decoder_stack(
    layers: Sequence[DecoderLayer],
    norm: Tensor | None,
    ops: TorchOps,
    attention_kinds: Sequence[AttentionKind],
    per_layer_input: PerLayerInput | None = None,
    first_layer: int = 0,
) -> DecoderStack:
    """The layers of a network; a NativeStack where that computes all of them."""
    stack = DecoderStack(layers, norm, ops, attention_kinds, per_layer_input, first_layer)
    program = NativeProgram.of(stack) if not first_layer else None
    return stack if program is None else NativeStack(layers, norm, ops, attention_kinds, program=program)


def _is_native(layer: DecoderLayer, dtype: torch.dtype) -> bool:
    """Whether the kernel knows all parts of a layer."""
    attention, mlp = layer.self_attn, layer.mlp
    if not isinstance(attention, Attention) or not isinstance(mlp, GatedMlp | MixtureOfExperts):
        return False
    if isinstance(mlp, MixtureOfExperts) and (mlp.shared is not None or dtype not in mlp.native):
        return False
    return (
        not isinstance(mlp.activation, SwiGluClamp)
        and not attention.has_output_gate
        and attention.wide_norms is None
        and layer.per_layer_gate is None
        and layer.residual_scale == layer.output_scale == 1.0
        and all(linear_layer(each, dtype) is not None for each in _linears(layer))
    )


def _linears(layer: DecoderLayer) -> tuple[Linear, Linear, Linear, Linear]:
    """Of a mixture those of its first expert."""
    attention, mlp = layer.self_attn, layer.mlp
    assert isinstance(attention, Attention) and isinstance(mlp, GatedMlp | MixtureOfExperts), _NOT_NATIVE
    if isinstance(mlp, MixtureOfExperts):
        return attention.qkv_proj, attention.o_proj, mlp.gate_up_proj.experts[0], mlp.down_proj.experts[0]
    return attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj


def _attention_kind(ops: NativeOps) -> _AttentionKind:
    sizes, scores = ops.dimensions, ops.dimensions.scores
    return _AttentionKind(
        sizes.heads, sizes.kv_heads, sizes.head_size, sizes.epsilon, ops.norm_offset, scores.scale, scores.cap or 0.0,
        data_pointer(ops.v_norm),
    )  # fmt: skip
