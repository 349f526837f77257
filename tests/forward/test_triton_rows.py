"""The row-by-row Triton kernels compute what torch computes; on machines without a GPU, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.forward.batch import CacheRows
from specchat.forward.cuda.triton_rows import activate_and_mul, add_rms_norm, qk_norm_rope, rms_norm
from specchat.forward.fused_ops import AttentionDimensions, QKVInputs, TorchOps
from tests.cover import matrix
from tests.each_row import each_row
from tests.triton_interpreter import DEVICE, interpreted_kernels

EPSILON = 1e-5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 0.004, torch.bfloat16: 0.03}
HEADS = [(4, 2), (7, 1), (3, 3)]
BATCHES = (1, 2, 7, 16)


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


def random(dtype: torch.dtype, *shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def is_close(ours: Tensor, theirs: Tensor) -> bool:
    return torch.allclose(ours, theirs, TOLERANCE[ours.dtype], TOLERANCE[ours.dtype])


def inputs_of(sizes: AttentionDimensions, dtype: torch.dtype, count: int, *, has_norms: bool) -> QKVInputs:
    norms = [random(dtype, sizes.head_size, seed=seed) for seed in (5, 6)] if has_norms else (None, None)
    cos, sin = random(dtype, 2, 16, 1, sizes.head_size, seed=7)[:, :count]
    qkv = random(dtype, 16, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_size, seed=8)[:count]
    return QKVInputs(qkv, *norms, cos, sin)


def rows_of_a_cache(keys: Tensor, values: Tensor, first_row: int, length: int) -> CacheRows:
    numbers = (torch.tensor(each, device=DEVICE) for each in (first_row, length))
    return CacheRows(lambda _layer: (keys, values), *numbers, None, keys.shape[2])


@each_row("dtype", DTYPES)
@each_row("size", [48, 77, 2048])
def test_norms_are_those_of_torch(dtype, size):
    torch_ops = TorchOps(AttentionDimensions(1, 1, size, EPSILON))
    rows, residual, weight = (random(dtype, 3, size), random(dtype, 3, size, seed=2), random(dtype, size, seed=3))

    total, normed = add_rms_norm(rows, residual, weight, EPSILON)

    assert is_close(rms_norm(rows, weight, EPSILON), torch_ops.rms_norm(rows, weight))
    assert torch.equal(total, rows + residual)
    assert is_close(normed, torch_ops.rms_norm(rows + residual, weight))


@each_row("dtype", DTYPES)
@each_row("inner", [40, 1024, 1100])
def test_swiglu_is_that_of_torch(dtype, inner):
    gate_up = random(dtype, 3, 2 * inner + 4)[:, : 2 * inner]  # not contiguous, as padded matmul results

    assert is_close(
        activate_and_mul(gate_up), TorchOps(AttentionDimensions(1, 1, 1, EPSILON)).activate_and_mul(gate_up)
    )


def test_swiglu_is_right_for_large_numbers():
    gate = torch.tensor([[-1e4, -90.0, -88.0, -20.0, 0.0, 20.0, 90.0, 1e4]], device=DEVICE)
    rows = torch.cat((gate, torch.ones_like(gate)), dim=1)

    expected = TorchOps(AttentionDimensions(1, 1, 1, EPSILON)).activate_and_mul(rows)
    assert torch.allclose(activate_and_mul(rows), expected, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    ("dtype", "size", "heads", "has_norms"), matrix(DTYPES, [64, 80, 96, 128], HEADS, [True, False])
)
def test_queries_are_rotated_and_keys_and_values_are_written_where_the_device_says(dtype, size, heads, has_norms):
    sizes, count = AttentionDimensions(*heads, size, EPSILON), 3
    inputs = inputs_of(sizes, dtype, count, has_norms=has_norms)
    keys, values = random(dtype, 2, 1, sizes.kv_heads, 20, size, seed=2)
    expected = TorchOps(sizes).qk_norm_rope(inputs)
    before = keys.clone(), values.clone()

    queries = qk_norm_rope(inputs, sizes, rows_of_a_cache(keys, values, 5, 7), 0)

    rows, new_keys, new_values = slice(12, 12 + count), *expected.cache_rows
    assert is_close(queries, expected.queries)
    assert is_close(keys[:, :, rows], new_keys)
    assert torch.equal(values[:, :, rows], new_values)
    for cache, old in zip((keys, values), before, strict=True):
        assert torch.equal(cache[:, :, : rows.start], old[:, :, : rows.start])
        assert torch.equal(cache[:, :, rows.stop :], old[:, :, rows.stop :])


@each_row("rotary, size", [(16, 64), (8, 40), (24, 80)])
def test_a_share_of_a_head_is_rotated_as_torch_does(rotary, size):
    sizes, dtype = AttentionDimensions(3, 1, size, EPSILON), torch.bfloat16
    inputs = inputs_of(sizes, dtype, 3, has_norms=True)
    inputs = replace(inputs, cos=inputs.cos[..., :rotary].contiguous(), sin=inputs.sin[..., :rotary].contiguous())
    keys, values = random(dtype, 2, 1, 1, 20, size, seed=2)
    expected = TorchOps(sizes).qk_norm_rope(inputs)

    queries = qk_norm_rope(inputs, sizes, rows_of_a_cache(keys, values, 5, 7), 0)

    assert is_close(queries, expected.queries)
    assert is_close(keys[:, :, 12:15], expected.cache_rows[0])
    assert torch.equal(values[:, :, 12:15], expected.cache_rows[1])


@each_row("dtype", DTYPES)
def test_values_are_normalized_where_a_family_does(dtype):
    sizes = AttentionDimensions(4, 2, 80, EPSILON, normalizes_values=True)
    inputs = inputs_of(sizes, dtype, 3, has_norms=True)
    keys, values = random(dtype, 2, 1, 2, 20, 80, seed=2)

    qk_norm_rope(inputs, sizes, rows_of_a_cache(keys, values, 5, 7), 0)

    assert is_close(values[:, :, 12:15], TorchOps(sizes).qk_norm_rope(inputs).cache_rows[1])


def test_a_layer_that_reads_the_keys_of_another_writes_none():
    sizes = AttentionDimensions(4, 2, 64, EPSILON)
    inputs = inputs_of(sizes, torch.float32, 3, has_norms=True)
    inputs = replace(inputs, qkv=inputs.qkv[:, : 4 * 64], k_norm=None, writes_kv=False)
    keys, values = random(torch.float32, 2, 1, 2, 20, 64, seed=2)
    before = keys.clone(), values.clone()

    queries = qk_norm_rope(inputs, sizes, rows_of_a_cache(keys, values, 5, 7), 0)

    assert is_close(queries, TorchOps(sizes).qk_norm_rope(inputs).queries)
    assert torch.equal(keys, before[0])
    assert torch.equal(values, before[1])


def test_later_nodes_of_a_tree_are_written_behind_the_first_ones():
    sizes = AttentionDimensions(4, 2, 64, EPSILON)
    inputs = inputs_of(sizes, torch.float32, 3, has_norms=False)
    keys, values = random(torch.float32, 2, 1, 2, 20, 64, seed=2)
    location = replace(rows_of_a_cache(keys, values, 5, 7), first_node=4)

    qk_norm_rope(inputs, sizes, location, 0)

    assert torch.equal(values[:, :, 16:19], TorchOps(sizes).qk_norm_rope(inputs).cache_rows[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.full)], ids=str)
def test_a_row_has_the_same_bits_in_every_batch(dtype):
    rows, weight, sizes = random(dtype, 16, 64), random(dtype, 64, seed=2), AttentionDimensions(2, 1, 64, EPSILON)
    results = dict[int, list[Tensor]]()
    for count in BATCHES:
        keys, values = torch.zeros(2, 1, 1, 20, 64, dtype=dtype, device=DEVICE)
        location = rows_of_a_cache(keys, values, 0, 2)
        queries = qk_norm_rope(inputs_of(sizes, dtype, count, has_norms=True), sizes, location, 0)
        few = rows[:count]
        results[count] = [
            queries, keys[0, 0, 2:], values[0, 0, 2:], rms_norm(few, weight, EPSILON),
            *add_rms_norm(few, few, weight, EPSILON), activate_and_mul(few),
        ]  # fmt: skip

    for count in BATCHES:
        assert all(
            torch.equal(*(pair[:count] for pair in pairs)) for pairs in zip(results[count], results[16], strict=True)
        )
