"""Our Triton kernels at the shapes of a model, as checks: against torch in float64, and a row against the row alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from specchat.bench.gpu.gpu_bench import Call, GpuBench
from specchat.bench.gpu.kernel_checks import KernelCheck, NamedCheck, product_check, relative_error
from specchat.forward.batch import CacheRows, ancestor_masks
from specchat.forward.fused_ops import AttentionDimensions, QKVInputs, TorchOps
from specchat.forward.linear.int4_linear import (
    NUMBERS_IN_WORD,
    Int4Linear,
    Int4Matmul,
    Int4Weight,
    int4_matmul,
    words_of_block,
)

GROUP_SIZE = 128  # of published AWQ and GPTQ checkpoints
SPARE_ROWS = 64


def own_kernel_checks(bench: GpuBench) -> Iterator[NamedCheck]:
    sizes = bench.sizes
    yield f"residual and norm of {sizes.hidden}", partial(_norm_check, bench)
    yield "q/k norm, RoPE, cache write", partial(_rope_check, bench)
    yield f"SwiGLU of {sizes.inner}", partial(_swiglu_check, bench)
    for context in sizes.contexts:
        yield f"attention of a tree, context {context}", partial(_attention_check, bench, context)
    shapes = {
        "qkv": (sizes.qkv_outputs, sizes.hidden), "o": (sizes.hidden, sizes.heads * sizes.head_size),
        "gate_up": (2 * sizes.inner, sizes.hidden), "down": (sizes.hidden, sizes.inner),
    }  # fmt: skip
    for name, shape in shapes.items():
        yield f"W4A16 {name} {shape[0]} x {shape[1]}", partial(int4_check, bench, shape)


def _norm_check(bench: GpuBench) -> KernelCheck:
    from specchat.forward.cuda import triton_rows

    sizes = bench.sizes
    rows, residual = bench.noise(sizes.most_rows, sizes.hidden), bench.noise(sizes.most_rows, sizes.hidden)
    weight = bench.noise(sizes.hidden)

    def compute(first: int, last: int) -> Tensor:
        return torch.cat(triton_rows.add_rms_norm(rows[first:last], residual[first:last], weight, 1e-5), dim=1)

    def error() -> float:
        total = (rows.float() + residual.float()).to(bench.dtype).double()
        normed = total * (total.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
        return relative_error(compute(0, sizes.most_rows), torch.cat((total, normed), dim=1))

    def calls(count: int) -> list[Call]:
        return [lambda: triton_rows.add_rms_norm(rows[:count], residual[:count], weight, 1e-5)]

    return _row_check(compute, error, calls, lambda n: 8 * n * sizes.hidden)


def _swiglu_check(bench: GpuBench) -> KernelCheck:
    from specchat.forward.cuda import triton_rows

    sizes = bench.sizes
    rows = bench.noise(sizes.most_rows, 2 * sizes.inner)

    def error() -> float:
        gate, up = rows.double().chunk(2, dim=1)
        return relative_error(triton_rows.silu_and_mul(rows), gate * torch.sigmoid(gate) * up)

    return _row_check(
        lambda first, last: triton_rows.silu_and_mul(rows[first:last]),
        error,
        lambda count: [lambda: triton_rows.silu_and_mul(rows[:count])],
        lambda count: 6 * count * sizes.inner,
    )


def _rope_check(bench: GpuBench) -> KernelCheck:
    """Norms of queries and keys, RoPE, and the write to the KV cache, whose rows are a part of the result."""
    from specchat.forward.cuda import triton_rows

    sizes, attention = bench.sizes, bench.sizes.attention
    qkv, angles = bench.noise(sizes.most_rows, sizes.qkv_outputs), bench.noise(2, sizes.most_rows, 1, sizes.head_size)
    norms = bench.noise(2, sizes.head_size)
    kv = torch.zeros(2, 1, sizes.kv_heads, 2 * SPARE_ROWS, sizes.head_size, dtype=bench.dtype, device=bench.device)
    zero = torch.zeros((), dtype=torch.long, device=bench.device)
    location = CacheRows(lambda _layer: (kv[0], kv[1]), zero, zero + 3, None, kv.shape[3])

    def inputs(first: int, last: int) -> QKVInputs:
        return QKVInputs(qkv[first:last], norms[0], norms[1], angles[0, first:last], angles[1, first:last])

    def compute(first: int, last: int) -> Tensor:
        queries = triton_rows.qk_norm_rope(inputs(first, last), attention, location, 0)
        written = kv[:, 0, :, 3 : 3 + last - first].permute(2, 0, 1, 3)
        return torch.cat((queries.flatten(1), written.flatten(1)), dim=1)

    def error() -> float:
        doubled = QKVInputs(qkv.double(), norms[0].double(), norms[1].double(), angles[0].double(), angles[1].double())
        exact = TorchOps(attention).qk_norm_rope(doubled)
        parts = [each.flatten(1) for each in (exact.queries, exact.keys, exact.values)]
        return relative_error(compute(0, sizes.most_rows), torch.cat(parts, dim=1))

    def calls(count: int) -> list[Call]:
        return [lambda: triton_rows.qk_norm_rope(inputs(0, count), attention, location, 0)]

    return _row_check(compute, error, calls, lambda n: 4 * n * sizes.qkv_outputs)


def _row_check(
    compute: Callable[[int, int], Tensor],
    error: Callable[[], float],
    calls: Callable[[int], list[Call]],
    moved_bytes: Callable[[int], int],
) -> KernelCheck:
    """The check of a function of rows `first` to `last`."""
    return KernelCheck(partial(compute, 0), lambda row: compute(row, row + 1)[0], error, calls, moved_bytes)


def int4_check(bench: GpuBench, shape: tuple[int, int]) -> KernelCheck:
    """The W4A16 product at this shape, with random words: the order of their numbers does not matter."""
    multiply = required_int4_matmul(bench)
    weight = random_int4(bench, shape)
    copies = range(bench.copies(weight.bytes))
    linears = [Int4Linear(replace(weight, words=weight.words.clone()), None, multiply) for _ in copies]
    return product_check(bench, linears, shape[1], lambda: weight.dequantized(torch.float32))


def required_int4_matmul(bench: GpuBench) -> Int4Matmul:
    """The W4A16 product on this device; NotImplementedError where there is none."""
    if (multiply := int4_matmul(bench.device, bench.dtype)) is None:
        raise NotImplementedError("no kernel for 4-bit weights here")
    return multiply


def random_int4(bench: GpuBench, shape: tuple[int, int]) -> Int4Weight:
    """A 4-bit weight of noise, packed as it is drawn."""
    outputs, inputs = shape
    size, device = min(GROUP_SIZE, inputs), bench.device
    word_count = words_of_block(size, inputs)
    blocks = -(-inputs // (NUMBERS_IN_WORD * word_count))
    words = torch.randint(-(2**15), 2**15, (blocks, outputs, word_count), dtype=torch.int16, device=device)
    groups = -(-inputs // size)
    zeros = torch.randint(0, 16, (groups, outputs), device=device)
    scales = bench.noise(groups, outputs).abs() * 0.004 + 0.001
    return Int4Weight.of_words(words, zeros, scales, size, inputs)


def _attention_check(bench: GpuBench, context: int) -> KernelCheck:
    """Nodes of a binary tree behind texts of this length, at places of an arena that take turns."""
    from specchat.forward.cuda import triton_attention

    sizes, dimensions, most = bench.sizes, bench.sizes.attention, bench.sizes.most_rows
    place_rows = context + SPARE_ROWS
    row_bytes = 2 * sizes.kv_heads * sizes.head_size * bench.dtype.itemsize
    places = bench.copies(context * row_bytes)
    kv_length = max(sizes.contexts) + SPARE_ROWS  # as in the arena of long texts: partial results for all splits
    kv = bench.noise(2, 1, sizes.kv_heads, places * place_rows, sizes.head_size)
    queries, mask = bench.noise(most, sizes.heads, sizes.head_size), binary_tree(most).to(bench.device)
    ancestors = ancestor_masks(mask)
    length = torch.full((), context, dtype=torch.long, device=bench.device)

    def attend(count: int, place: int = 0) -> Tensor:
        first_row = first_rows[place]
        location = CacheRows(lambda _layer: (kv[0], kv[1]), first_row, length, ancestors[:count], kv_length)
        return triton_attention.attention(queries[:count], location, 0, dimensions)

    first_rows = [torch.full((), place * place_rows, dtype=torch.long, device=bench.device) for place in range(places)]
    return KernelCheck(
        together=attend,
        alone=lambda row: _path_alone(queries[row : row + 1], kv[:, :, :, :place_rows], mask[row], context, dimensions),
        error=lambda: relative_error(attend(most), exact_attention(queries, kv[:, 0, :, : context + most], mask)),
        calls=lambda count: [partial(attend, count, place) for place in range(places)],
        moved_bytes=lambda count: context * row_bytes + 4 * count * sizes.heads * sizes.head_size,
        checked_rows=[row for row in (0, 1, 2, 5, 15, 16, 40, most - 1) if row < most],
    )


def _path_alone(query: Tensor, kv: Tensor, seen: Tensor, context: int, sizes: AttentionDimensions) -> Tensor:
    """A node whose path is committed, as plain decoding reads it. query [1, H, size], kv [2, 1, KV, rows, size]"""
    from specchat.forward.cuda import triton_attention

    path = torch.cat((torch.arange(context, device=seen.device), context + seen.nonzero()[:, 0]))
    rows, zero = kv.index_select(3, path), torch.zeros((), dtype=torch.long, device=seen.device)
    location = CacheRows(lambda _layer: (rows[0], rows[1]), zero, zero + len(path) - 1, zero[None] + 1, kv.shape[3])
    return triton_attention.attention(query, location, 0, sizes)[0]


def binary_tree(count: int) -> Tensor:
    """Which nodes each node sees: itself, and the path to the root. bool [N, N]"""
    mask = torch.eye(count, dtype=torch.bool)
    for node in range(1, count):
        mask[node] |= mask[(node - 1) // 2]
    return mask


def exact_attention(queries: Tensor, kv: Tensor, mask: Tensor) -> Tensor:
    """In float64. queries [N, H, size]; kv [2, KV, T + N, size]; mask of the last N rows [N, N] -> [N, H * size]"""
    count, heads, size = queries.shape
    keys, values = kv.double()
    grouped = queries.double().view(count, len(keys), -1, size)
    scores = torch.einsum("nkgs,kts->nkgt", grouped, keys) * size**-0.5
    scores[..., -count:] = scores[..., -count:].masked_fill(~mask[:, None, None], float("-inf"))
    return torch.einsum("nkgt,kts->nkgs", scores.softmax(-1), values).reshape(count, heads * size)
