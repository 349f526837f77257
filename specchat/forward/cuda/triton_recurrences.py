"""Triton kernels of recurrent layers: short convolution, gated delta rule over chains and trees, and gated norm.

The states of a text are read at a fixed address, and a pass does not change them: a program takes a leaf of the tree,
starts from the state of the text and steps along the leaf's path, so that a node continues its parent's state and a
chain is stepped once. Rows of the pass are recorded; `apply_path` brings the states after those that were committed. A
row is stepped by the same instructions alone, in a chain and in a tree, so it has the same bits. Knows tensors; knows
no text and no layer.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.forward.batch import MASK_BITS
from specchat.forward.llama.gated_delta_net import DeltaNetSizes, GatedDeltaNet, MixerInputs
from specchat.forward.recurrences import NORM_EPSILON, DeltaGates

CHANNELS_OF_BLOCK = 256
VALUES_OF_BLOCK = 8  # columns of a state that one warp steps: their keys fit its registers
OPTIONS = {"enable_fp_fusion": False}  # the default depends on the version of Triton
STEP_OPTIONS = OPTIONS | {"num_warps": 1}


@triton.jit
def _convolve_kernel(
    columns, state, weight, projected, ancestors, out, recorded_columns, recorded_gates, stride_columns, channels,
    GATES: tl.constexpr, GATE_BLOCK: tl.constexpr, KERNEL: tl.constexpr, BLOCK: tl.constexpr, NODES: tl.constexpr,
    IS_TREE: tl.constexpr,
):  # fmt: skip
    """Some channels of one row: its window ends at the row and goes back along its path, then into the state."""
    node = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < channels
    depth = node
    bit = tl.arange(0, NODES)
    if IS_TREE:
        is_ancestor = ((tl.load(ancestors + node) >> bit.to(tl.int64)) & 1).to(tl.int32)
        rank = tl.cumsum(is_ancestor, axis=0) - 1
        depth = tl.sum(is_ancestor, axis=0).to(tl.int64) - 1
    total = tl.zeros([BLOCK], tl.float32)
    for step in tl.static_range(KERNEL):
        place = depth + (step - KERNEL + 1)
        row = place
        if IS_TREE:
            row = tl.sum(tl.where((rank == place) & (is_ancestor == 1), bit, 0), axis=0).to(tl.int64)
        is_new = place + 0 * column >= 0
        new = tl.load(columns + row * stride_columns + column, mask=is_inside & is_new, other=0.0)
        old = tl.load(state + (place + KERNEL - 1) * channels + column, mask=is_inside & ~is_new, other=0.0)
        weights = tl.load(weight + step * channels + column, mask=is_inside, other=0.0).to(tl.float32)
        total += tl.where(is_new, new, old).to(tl.float32) * weights
    total = total.to(out.dtype.element_ty).to(tl.float32)
    total = total / (1.0 + tl.exp(-total))
    tl.store(out + node * channels + column, total.to(out.dtype.element_ty), mask=is_inside)
    if IS_TREE:
        own = tl.load(columns + node * stride_columns + column, mask=is_inside, other=0.0)
        tl.store(recorded_columns + node * channels + column, own, mask=is_inside)
        if tl.program_id(1) == 0:
            gate = tl.arange(0, GATE_BLOCK)
            gates = tl.load(projected + node * GATES + gate, mask=gate < GATES, other=0.0)
            tl.store(recorded_gates + node * GATES + gate, gates, mask=gate < GATES)


@triton.jit
def _step(
    state, rows, projected, row, rate, bias, head, key, value,
    EPSILON: tl.constexpr, SCALE: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEYS: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """The state after a row, and its output. `key` and `value`: the places of the state's rows and columns."""
    channels: tl.constexpr = 2 * KEY_HEADS * KEYS + HEADS * VALUES
    key_place = rows + row * channels + (head // (HEADS // KEY_HEADS)) * KEYS + key
    value_place = rows + row * channels + 2 * KEY_HEADS * KEYS + head * VALUES + value
    queries = tl.load(key_place, mask=key < KEYS, other=0.0).to(tl.float32)
    keys = tl.load(key_place + KEY_HEADS * KEYS, mask=key < KEYS, other=0.0).to(tl.float32)
    values = tl.load(value_place, mask=value < VALUES, other=0.0).to(tl.float32)
    queries = queries * (1.0 / tl.sqrt(tl.sum(queries * queries, axis=0) + EPSILON)) * SCALE
    keys = keys * (1.0 / tl.sqrt(tl.sum(keys * keys, axis=0) + EPSILON))
    gate = projected + row * 2 * HEADS + head
    beta = 1.0 / (1.0 + tl.exp(-tl.load(gate).to(tl.float32)))
    beta = beta.to(projected.dtype.element_ty).to(tl.float32)
    steps = tl.load(gate + HEADS).to(tl.float32) + bias
    softplus = tl.where(steps > 20.0, steps, tl.log(1.0 + tl.exp(tl.minimum(steps, 20.0))))
    state = state * tl.exp(rate * softplus)
    known = tl.sum(state * keys[:, None], axis=0)
    state = state + keys[:, None] * ((values - known) * beta)[None, :]
    return state, tl.sum(state * queries[:, None], axis=0)


@triton.jit(do_not_specialize=["count"])
def _tree_kernel(
    state, rows, projected, rates, biases, ancestors, out, count,
    EPSILON: tl.constexpr, SCALE: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEYS: tl.constexpr,
    VALUES: tl.constexpr, KEY_BLOCK: tl.constexpr, BLOCK: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """Some values of one head, along the path of one node that has no child. Padding is zeros."""
    node, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key, value = tl.arange(0, KEY_BLOCK), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    path, bit = tl.load(ancestors + node), tl.arange(0, NODES)
    seen_by = (tl.load(ancestors + bit, mask=bit < count, other=0) >> node) & 1
    is_padding = (node > 0) & (path == tl.full([], 1, tl.int64) << node)  # which alone sees no root
    if is_padding:
        zeros = tl.zeros([BLOCK], tl.float32).to(out.dtype.element_ty)
        tl.store(out + (node * HEADS + head) * VALUES + value, zeros, mask=value < VALUES)
    elif tl.sum(seen_by, axis=0) == 1:
        rate, bias = tl.load(rates + head), tl.load(biases + head)
        place = (head * KEYS + key)[:, None] * VALUES + value[None, :]
        is_number = (key < KEYS)[:, None] & (value < VALUES)[None, :]
        numbers = tl.load(state + place, mask=is_number, other=0.0)
        for row in range(node + 1):
            if ((path >> row) & 1) == 1:
                numbers, output = _step(
                    numbers, rows, projected, row, rate, bias, head, key, value,
                    EPSILON, SCALE, HEADS, KEY_HEADS, KEYS, VALUES,
                )  # fmt: skip
                to = out + (row * HEADS + head) * VALUES + value  # paths that share a row write the same bits
                tl.store(to, output.to(out.dtype.element_ty), mask=value < VALUES)


@triton.jit(do_not_specialize=["count", "layer_rows"])
def _chain_kernel(
    states, rows, projected, rates, biases, path, out, next_states, count, layer_rows,
    EPSILON: tl.constexpr, SCALE: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEYS: tl.constexpr,
    VALUES: tl.constexpr, KEY_BLOCK: tl.constexpr, BLOCK: tl.constexpr, HAS_PATH: tl.constexpr,
):  # fmt: skip
    """Some values of one head of one layer, along its rows, or with HAS_PATH along recorded ones, without outputs."""
    layer, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key, value = tl.arange(0, KEY_BLOCK), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    place = ((layer * HEADS + head) * KEYS + key)[:, None] * VALUES + value[None, :]
    is_number = (key < KEYS)[:, None] & (value < VALUES)[None, :]
    rate, bias = tl.load(rates + layer * HEADS + head), tl.load(biases + layer * HEADS + head)
    numbers = tl.load(states + place, mask=is_number, other=0.0)
    for index in range(count):
        row = layer * layer_rows + index
        if HAS_PATH:
            row = layer * layer_rows + tl.load(path + index)
        numbers, output = _step(
            numbers, rows, projected, row, rate, bias, head, key, value,
            EPSILON, SCALE, HEADS, KEY_HEADS, KEYS, VALUES,
        )  # fmt: skip
        if not HAS_PATH:
            to = out + (row * HEADS + head) * VALUES + value
            tl.store(to, output.to(out.dtype.element_ty), mask=value < VALUES)
    tl.store(next_states + place, numbers, mask=is_number)


@triton.jit
def _gated_norm_kernel(
    rows, gates, weight, out, stride_gates, epsilon, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    row, head, column = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, BLOCK)
    is_inside = column < SIZE
    place = (row * HEADS + head) * SIZE + column
    numbers = tl.load(rows + place, mask=is_inside, other=0.0).to(tl.float32)
    gate = tl.load(gates + row * stride_gates + head * SIZE + column, mask=is_inside, other=0.0).to(tl.float32)
    weights = tl.load(weight + column, mask=is_inside, other=0.0).to(tl.float32)
    normed = numbers * (1.0 / tl.sqrt(tl.sum(numbers * numbers, axis=0) / SIZE + epsilon)) * weights
    tl.store(out + place, (normed * (gate / (1.0 + tl.exp(-gate)))).to(out.dtype.element_ty), mask=is_inside)


@dataclass(frozen=True)
class Recording:
    """The rows of a pass over a tree, of one layer or, with one dimension more in front, of all."""

    columns: Tensor  # [MASK_BITS, channels]: the inputs of the convolution
    rows: Tensor  # [MASK_BITS, channels]: queries, keys and values
    projected: Tensor  # [MASK_BITS, 2 H]: gates


def convolve(
    net: GatedDeltaNet, inputs: MixerInputs, state: Tensor, recording: Recording, ancestors: Tensor | None = None
) -> None:
    """Write queries, keys and values of rows that follow a state; of a tree, int64 [N], the other rows, too."""
    (count, channels), projected, gates = inputs.columns.shape, inputs.projected, inputs.projected.shape[1]
    _convolve_kernel[(count, triton.cdiv(channels, CHANNELS_OF_BLOCK))](
        inputs.columns, state, net.convolution, projected, projected if ancestors is None else ancestors,
        recording.rows, recording.columns, recording.projected, inputs.columns.stride(0), channels,
        GATES=gates, GATE_BLOCK=triton.next_power_of_2(gates), KERNEL=net.sizes.kernel, BLOCK=CHANNELS_OF_BLOCK,
        NODES=MASK_BITS, IS_TREE=ancestors is not None, **OPTIONS,
    )  # fmt: skip


def step_tree(net: GatedDeltaNet, recording: Recording, state: Tensor, ancestors: Tensor) -> Tensor:
    """The outputs of recorded nodes, which begin at this state. [1, H, keys, values], int64 [N] -> [N, H, values]"""
    sizes, gates, count = net.sizes, net.gates, len(ancestors)
    out = recording.rows.new_empty(count, sizes.heads, sizes.value_size)
    _tree_kernel[(count, *_grid(sizes))](
        state, recording.rows, recording.projected, gates.rates, gates.biases, ancestors, out, count,
        **_constants(sizes), NODES=MASK_BITS, **STEP_OPTIONS,
    )  # fmt: skip
    return out


def step_chain(net: GatedDeltaNet, recording: Recording, state: Tensor, next_state: Tensor) -> Tensor:
    """The outputs of convolved rows, which begin at this state, and the state after them. -> [N, H, values]"""
    sizes, gates, (rows, projected) = net.sizes, net.gates, (recording.rows, recording.projected)
    out = rows.new_empty(len(rows), sizes.heads, sizes.value_size)
    _chain_kernel[(1, *_grid(sizes))](
        state, rows, projected, gates.rates, gates.biases, projected, out, next_state, len(rows), 0,
        **_constants(sizes), HAS_PATH=False, **STEP_OPTIONS,
    )  # fmt: skip
    return out


def apply_path(
    sizes: DeltaNetSizes, matrices: Tensor, gates: DeltaGates, recording: Recording, path: Tensor, count: int
) -> None:
    """Bring the matrices of all layers after a path: the first `count` numbers of an int64 [...]. [layers, ...]"""
    _chain_kernel[(len(matrices), *_grid(sizes))](
        matrices, recording.rows, recording.projected, gates.rates, gates.biases, path, matrices, matrices, count,
        MASK_BITS, **_constants(sizes), HAS_PATH=True, **STEP_OPTIONS,
    )  # fmt: skip


def gated_rms_norm(rows: Tensor, gates: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension, times silu of the gates. [N, H, size], whose rows may lie apart in `gates`"""
    (count, heads, size), out = rows.shape, torch.empty_like(rows)
    _gated_norm_kernel[(count, heads)](
        rows, gates, weight, out, gates.stride(0), epsilon, HEADS=heads, SIZE=size,
        BLOCK=triton.next_power_of_2(size), **OPTIONS,
    )  # fmt: skip
    return out


def _grid(sizes: DeltaNetSizes) -> tuple[int, int]:
    return sizes.heads, triton.cdiv(sizes.value_size, VALUES_OF_BLOCK)


def _constants(sizes: DeltaNetSizes) -> dict[str, int | float]:
    return {
        "EPSILON": NORM_EPSILON, "SCALE": sizes.key_size**-0.5,
        "HEADS": sizes.heads, "KEY_HEADS": sizes.key_heads, "KEYS": sizes.key_size,
        "VALUES": sizes.value_size, "KEY_BLOCK": triton.next_power_of_2(sizes.key_size), "BLOCK": VALUES_OF_BLOCK,
    }  # fmt: skip
