"""Triton kernels that compute row by row: RMS norm with the residual, SwiGLU, GeGLU, and RoPE with the write to the
KV cache.

The CUDA siblings of `native_ops.cpp`. One program computes one row (or one head of one row) in float32 and rounds once,
so a row has the same bits in every batch. The rows of the cache are found by numbers that lie on the device, so that a
CUDA graph can be replayed while the text grows. Knows tensors and rows; knows no layer.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.forward.batch import CacheRows
from specchat.forward.fused_ops import AttentionDimensions, QKVInputs
from specchat.forward.llama.variations import SILU

ACTIVATION_BLOCK = 1024  # numbers of a row that one program computes
OPTIONS = {"enable_fp_fusion": False}  # the default depends on the version of Triton


@triton.jit
def _rms_norm_kernel(
    rows, residual, weight, total, out, size, epsilon, offset, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    is_inside = column < size
    numbers = tl.load(rows + row * size + column, mask=is_inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        numbers += tl.load(residual + row * size + column, mask=is_inside, other=0.0).to(tl.float32)
        rounded = numbers.to(total.dtype.element_ty)  # the norm is that of the sum as the next layer reads it
        tl.store(total + row * size + column, rounded, mask=is_inside)
        numbers = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(numbers * numbers, axis=0) / size + epsilon)
    weights = tl.load(weight + column, mask=is_inside, other=0.0).to(tl.float32) + offset
    tl.store(out + row * size + column, (numbers * scale * weights).to(out.dtype.element_ty), mask=is_inside)


@triton.jit
def _activate_and_mul_kernel(gate_up, out, inner, IS_GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < inner
    gate = tl.load(gate_up + row * 2 * inner + column, mask=is_inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * inner + inner + column, mask=is_inside, other=0.0).to(tl.float32)
    power = gate
    if IS_GELU:  # x * (1 + tanh(u)) / 2 = x / (1 + e^-2u)
        power = 1.5957691216 * (gate + 0.044715 * gate * gate * gate)
    activated = gate / (1.0 + tl.exp(-power))
    tl.store(out + row * inner + column, (activated * up).to(out.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["first_node"])
def _qk_norm_rope_kernel(
    qkv, q_norm, k_norm, cos, sin, queries, keys, values, first_row, length, first_node,
    stride_head, stride_row, epsilon, offset,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, ROTARY: tl.constexpr, BLOCK: tl.constexpr,
    HAS_NORMS: tl.constexpr, NORMALIZES_VALUES: tl.constexpr,
):  # fmt: skip
    """One head of one row: of the queries, then of the keys, then of the values. BLOCK covers half a head.

    Numbers are taken in pairs: those that are rotated together, then, beyond the first ROTARY numbers, the others.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half: tl.constexpr = SIZE // 2
    rotated: tl.constexpr = ROTARY // 2
    column = tl.arange(0, BLOCK)
    is_inside = column < half
    is_rotated = column < rotated
    place = tl.where(is_rotated, column, column + rotated)
    other_place = tl.where(is_rotated, column + rotated, column + half)
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE
    first = tl.load(source + place, mask=is_inside, other=0.0)
    second = tl.load(source + other_place, mask=is_inside, other=0.0)
    cache_row = tl.load(first_row).to(tl.int64) + tl.load(length).to(tl.int64) + first_node + row
    if head >= HEADS + KV_HEADS:
        to = values + (head - HEADS - KV_HEADS) * stride_head + cache_row * stride_row
        if NORMALIZES_VALUES:
            squares = tl.sum(first.to(tl.float32) * first.to(tl.float32), axis=0)
            squares += tl.sum(second.to(tl.float32) * second.to(tl.float32), axis=0)
            scale = 1.0 / tl.sqrt(squares / SIZE + epsilon)
            first = (first.to(tl.float32) * scale).to(first.dtype)
            second = (second.to(tl.float32) * scale).to(second.dtype)
        tl.store(to + place, first, mask=is_inside)
        tl.store(to + other_place, second, mask=is_inside)
    else:
        is_query = head < HEADS
        if HAS_NORMS:
            squares = tl.sum(first.to(tl.float32) * first.to(tl.float32), axis=0)
            squares += tl.sum(second.to(tl.float32) * second.to(tl.float32), axis=0)
            scale = 1.0 / tl.sqrt(squares / SIZE + epsilon)
            first_weight = tl.load(k_norm + place, mask=is_inside, other=0.0)
            second_weight = tl.load(k_norm + other_place, mask=is_inside, other=0.0)
            if is_query:
                first_weight = tl.load(q_norm + place, mask=is_inside, other=0.0)
                second_weight = tl.load(q_norm + other_place, mask=is_inside, other=0.0)
            first = (first.to(tl.float32) * scale * (first_weight.to(tl.float32) + offset)).to(first.dtype)
            second = (second.to(tl.float32) * scale * (second_weight.to(tl.float32) + offset)).to(second.dtype)
        angle = row * ROTARY + column
        one, other = first.to(tl.float32), second.to(tl.float32)
        cos_first = tl.load(cos + angle, mask=is_rotated, other=1.0).to(tl.float32)
        cos_second = tl.load(cos + angle + rotated, mask=is_rotated, other=1.0).to(tl.float32)
        sin_first = tl.load(sin + angle, mask=is_rotated, other=0.0).to(tl.float32)
        sin_second = tl.load(sin + angle + rotated, mask=is_rotated, other=0.0).to(tl.float32)
        rotated_first = (one * cos_first + other * sin_first).to(first.dtype)
        rotated_second = (other * cos_second + one * sin_second).to(first.dtype)
        if is_query:
            to = queries + (row * HEADS + head) * SIZE
            tl.store(to + place, rotated_first, mask=is_inside)
            tl.store(to + other_place, rotated_second, mask=is_inside)
        else:
            to = keys + (head - HEADS) * stride_head + cache_row * stride_row
            tl.store(to + place, rotated_first, mask=is_inside)
            tl.store(to + other_place, rotated_second, mask=is_inside)


def rms_norm(rows: Tensor, weight: Tensor, epsilon: float, offset: float = 0.0) -> Tensor:
    """RMS norm over the last dimension, times offset + weight. [N, D] or [N, parts, D]"""
    rows, out = rows.contiguous(), torch.empty_like(rows, memory_format=torch.contiguous_format)
    count, size = rows.shape[:-1].numel(), rows.shape[-1]
    block = triton.next_power_of_2(size)
    _rms_norm_kernel[(count,)](
        rows, rows, weight, out, out, size, epsilon, offset, HAS_RESIDUAL=False, BLOCK=block, **OPTIONS
    )
    return out


def add_rms_norm(
    rows: Tensor, residual: Tensor, weight: Tensor, epsilon: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The sum, and its RMS norm. [N, D] each"""
    rows, residual = rows.contiguous(), residual.contiguous()
    total, out = torch.empty_like(rows), torch.empty_like(rows)
    count, size = rows.shape
    block = triton.next_power_of_2(size)
    _rms_norm_kernel[(count,)](
        rows, residual, weight, total, out, size, epsilon, offset, HAS_RESIDUAL=True, BLOCK=block, **OPTIONS
    )
    return total, out


def activate_and_mul(gate_up: Tensor, activation: str = SILU) -> Tensor:
    """SwiGLU or GeGLU: activation(first half) * second half. [N, 2 inner] -> [N, inner]"""
    gate_up = gate_up.contiguous()
    count, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(count, inner)
    block = min(ACTIVATION_BLOCK, triton.next_power_of_2(inner))
    grid = (count, triton.cdiv(inner, block))
    _activate_and_mul_kernel[grid](gate_up, out, inner, IS_GELU=activation != SILU, BLOCK=block, **OPTIONS)
    return out


def qk_norm_rope(inputs: QKVInputs, sizes: AttentionDimensions, location: CacheRows, layer: int) -> Tensor:
    """Normalize and rotate queries and keys, and write keys and values to the KV cache. -> queries [N, heads, size]"""
    states, (keys, values) = inputs.qkv.contiguous(), location.kv(layer)
    queries = states.new_empty(len(states), sizes.heads, sizes.head_size)
    kv_heads = sizes.kv_heads if inputs.writes_kv else 0
    q_norm, k_norm = inputs.q_norm, inputs.k_norm if kv_heads else inputs.q_norm
    no_norm = q_norm is None or k_norm is None
    _qk_norm_rope_kernel[(len(states), sizes.heads + 2 * kv_heads)](
        states, states if no_norm else q_norm, states if no_norm else k_norm, inputs.cos, inputs.sin, queries, keys,
        values, location.first_row, location.length, location.first_node, keys.stride(1), keys.stride(2),
        sizes.epsilon, float(sizes.scaling.norms_add_one),
        HEADS=sizes.heads, KV_HEADS=kv_heads, SIZE=sizes.head_size, ROTARY=inputs.cos.shape[-1],
        BLOCK=triton.next_power_of_2(sizes.head_size // 2), HAS_NORMS=not no_norm,
        NORMALIZES_VALUES=sizes.normalizes_values, **OPTIONS,
    )  # fmt: skip
    return queries
