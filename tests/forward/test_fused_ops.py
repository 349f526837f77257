"""The native kernels compute what torch computes, row by row."""

import ctypes
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch

from specchat.engine.cache import KVCache, KVLayout, KVLocation, KVPool
from specchat.engine.decode import Generation
from specchat.engine.int8_rows import dequantize_rows
from specchat.engine.tree import DraftTree
from specchat.forward import fused_ops
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import ForwardBatch
from specchat.forward.fused_ops import (
    AttentionDimensions,
    NativeOps,
    QKVInputs,
    TorchOps,
    matches_torch,
    select_fused_ops,
)  # fmt: skip
from specchat.forward.linear.linear import TOLERANCE
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.llama.variations import SwiGluClamp
from specchat.forward.native.native_ops import NativeBorderError, native_kernels
from tests.each_row import each_row
from tests.tiny import target

CHAIN = [60, 61, 3]
DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [
    AttentionDimensions(4, 2, 12, 1e-6),
    AttentionDimensions(14, 2, 64, 1e-6),
    AttentionDimensions(3, 3, 80, 1e-5),
    AttentionDimensions(8, 1, 512, 1e-6),
    AttentionDimensions(4, 1, 20, 1e-6, normalizes_values=True),
    AttentionDimensions(6, 2, 24, 1e-6, has_sinks=True),
]

pytestmark = pytest.mark.usefixtures("native_library")


def both(sizes: AttentionDimensions = SHAPES[0], dtype: torch.dtype = torch.float32) -> tuple[NativeOps, TorchOps]:
    return NativeOps(sizes, native_kernels(), dtype), TorchOps(sizes)


def is_close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.allclose(ours, theirs, TOLERANCE[ours.dtype], TOLERANCE[ours.dtype])


def random(dtype: torch.dtype, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attention_results(
    ops: TorchOps,
    dtype: torch.dtype,
    count: int,
    committed: int,
    *,
    has_norms: bool,
    is_int8: bool = False,
    writes_kv: bool = True,
) -> list[torch.Tensor]:
    """The output for `count` rows of a tree after the committed rows, and the keys and values in the cache.

    Without `writes_kv`, an earlier layer has written those of the new rows.
    """
    sizes = ops.dimensions
    kv_shape = (sizes.kv_heads, sizes.head_size, sizes.head_size)
    pool = KVPool(KVLayout((kv_shape,), dtype, torch.device("cpu"), is_int8))
    cache = pool.open()
    with pool.acquire_slot(cache, committed + count):
        rows = 1, sizes.kv_heads, committed if writes_kv else committed + count, sizes.head_size
        cache.write(0, random(dtype, *rows, seed=2), random(dtype, *rows, seed=3))
        cache.length = committed
        cos, sin = random(dtype, 2, count, 1, sizes.head_size, seed=7)
        nodes = torch.rand(count, count, generator=torch.Generator().manual_seed(4)) < 0.5
        nodes |= torch.eye(count, dtype=torch.bool)
        allowed = torch.cat((torch.ones(count, committed, dtype=torch.bool), nodes), dim=1)
        mask = None if count == 1 else AttentionMask(allowed, sizes.heads // sizes.kv_heads, cos)
        positions = torch.arange(count)
        kv_location = partial(cache.kv_location, kv_length=committed + count)
        read_kv = partial(cache.read, kv_length=committed + count)
        batch = ForwardBatch(positions, {None: mask}, cache.write, kv_location, read_kv=read_kv)
        norms = [random(dtype, sizes.head_size, seed=seed) for seed in (5, 6)] if has_norms else (None, None)
        heads = sizes.heads + (2 * sizes.kv_heads if writes_kv else 0)
        qkv = random(dtype, count, heads * sizes.head_size, seed=8)
        sinks = 3 * random(dtype, sizes.heads, seed=9) if sizes.has_sinks else None
        output = ops.attention(QKVInputs(qkv, *norms, cos, sin, sinks, writes_kv), batch, 0, None)
        layers = cache.require_slot().layers[0]
        return [output, *(dequantize_rows(each, dtype) if is_int8 else each.clone() for each in layers)]


@pytest.mark.full
@each_row("sizes", SHAPES)
def test_attention_has_the_output_and_the_cache_of_torch(sizes):
    """For one row, for the nodes of a tree, and for so many rows that threads share blocks of them."""
    cases, wrong = product(DTYPES, (1, 5, 150), (True, False)), []
    for dtype, count, has_norms in cases:
        ours, theirs = (attention_results(ops, dtype, count, 37, has_norms=has_norms) for ops in both(sizes, dtype))
        if not all(is_close(our, their) for our, their in zip(ours, theirs, strict=True)):
            wrong.append((dtype, count, has_norms))

    assert wrong == []


@each_row("is_int8", [False, True])
@each_row("sizes", SHAPES)
def test_attention_to_the_keys_of_an_earlier_layer_has_the_output_of_torch(sizes, is_int8):
    ours, theirs = (
        attention_results(ops, torch.bfloat16, 5, 37, has_norms=True, is_int8=is_int8, writes_kv=False)
        for ops in both(sizes, torch.bfloat16)
    )

    assert is_close(ours[0], theirs[0])
    assert all(torch.equal(our, their) for our, their in zip(ours[1:], theirs[1:], strict=True))


@each_row("dtype", DTYPES)
@each_row("sizes", SHAPES)
def test_attention_over_rows_of_8_bits_has_the_output_of_torch(dtype, sizes):
    native_ops, torch_ops = both(sizes, dtype)
    ours, theirs = (
        attention_results(ops, dtype, 5, 37, has_norms=True, is_int8=True) for ops in (native_ops, torch_ops)
    )

    assert is_close(ours[0], theirs[0])
    for our, their in zip(ours[1:], theirs[1:], strict=True):  # keys that are rounded may be one step apart
        step = their.float().abs().amax(-1, keepdim=True) / 127
        assert ((our.float() - their.float()).abs() <= 1.1 * step + TOLERANCE[dtype] * their.float().abs()).all()


@each_row("dtype", DTYPES)
def test_rms_norm_and_swiglu_have_the_results_of_torch(dtype):
    native_ops, torch_ops = both(dtype=dtype)
    rows, residual, weight = random(dtype, 3, 77), random(dtype, 3, 77, seed=2), random(dtype, 77, seed=3)

    assert is_close(native_ops.rms_norm(rows, weight), torch_ops.rms_norm(rows, weight))
    assert torch.equal(
        native_ops.add_rms_norm(rows, residual, weight)[0], torch_ops.add_rms_norm(rows, residual, weight)[0]
    )
    assert is_close(
        native_ops.add_rms_norm(rows, residual, weight)[1], torch_ops.add_rms_norm(rows, residual, weight)[1]
    )
    assert is_close(
        native_ops.activate_and_mul(rows[:, :76]), torch_ops.activate_and_mul(rows[:, :76])
    )  # not contiguous, as padded matmul results
    clamp = SwiGluClamp(1.702, 1.5)
    assert is_close(native_ops.activate_and_mul(rows[:, :76], clamp), torch_ops.activate_and_mul(rows[:, :76], clamp))


BORDERS = {
    "norm of another size": lambda ops: ops.rms_norm(torch.ones(3, 8), torch.ones(1)),
    "norm of another dtype": lambda ops: ops.rms_norm(torch.ones(3, 8), torch.ones(8).bfloat16()),
    "residual of another size": lambda ops: ops.add_rms_norm(torch.ones(3, 8), torch.ones(2, 8), torch.ones(8)),
    "sum and norm of another size": lambda ops: ops.add_rms_norm(torch.ones(3, 8), torch.ones(3, 8), torch.ones(4)),
}


@each_row("call", BORDERS.values())
def test_a_kernel_gets_no_tensor_that_it_would_read_beyond(call):
    with pytest.raises(NativeBorderError):
        call(both()[0])


@each_row(
    "change",
    [
        {"qkv": torch.ones(3, 64)}, {"qkv": torch.ones(3, 96).bfloat16()}, {"q_norm": torch.ones(1)},
        {"cos": torch.ones(2, 1, 12)}, {"sin": torch.ones(3, 12)}, {"first": 14}, {"first": -1}, {"kv_length": 17},
        {"keys": 1}, {"mask": 5},
    ],
)  # fmt: skip
def test_attention_gets_no_rows_and_no_cache_of_another_size(change):
    sizes, native_ops = SHAPES[0], both()[0]
    given = {"first": 5, "kv_length": 8, "keys": 2, "mask": 8, "qkv": torch.ones(3, 96)} | change
    angles = torch.ones(3, 1, 12)
    cache = torch.zeros(2, 1, given["keys"], 16, sizes.head_size)
    mask = AttentionMask(torch.ones(3, given["mask"]).bool(), 2, angles)
    location = KVLocation(*cache, given["first"], given["kv_length"])
    batch = ForwardBatch(torch.arange(3), {None: mask}, lambda *_: None, lambda _layer: location)
    inputs = QKVInputs(given["qkv"], change.get("q_norm"), None, change.get("cos", angles), change.get("sin", angles))

    with pytest.raises(NativeBorderError):
        native_ops.attention(inputs, batch, 0, None)


def test_sums_are_rounded_to_bfloat16_as_in_torch():
    native_ops, _ = both(dtype=torch.bfloat16)
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    numbers = bits[bits.isfinite()].view(1, -1)
    for shift in (1.0, 0.0039, 257.0):  # some sums are between two bfloat16 numbers, some exactly halfway
        residual = torch.full_like(numbers, shift)
        assert torch.equal(
            native_ops.add_rms_norm(numbers, residual, torch.ones_like(numbers[0]))[0], numbers + residual
        )


def test_nan_stays_nan():
    native_ops, _ = both(dtype=torch.bfloat16)
    total, _normed = native_ops.add_rms_norm(
        torch.tensor([[float("nan"), 1.0]]).bfloat16(), torch.ones(1, 2).bfloat16(), torch.ones(2).bfloat16()
    )

    assert [True, False] == total[0].isnan().tolist()


def test_swiglu_is_right_for_large_numbers():
    native_ops, torch_ops = both()
    gate = torch.tensor([[-1e4, -90.0, -88.0, -20.0, 0.0, 20.0, 90.0, 1e4]])
    rows = torch.cat((gate, torch.ones_like(gate)), dim=1)

    assert torch.allclose(native_ops.activate_and_mul(rows), torch_ops.activate_and_mul(rows), rtol=1e-5, atol=1e-30)


@each_row("dtype", DTYPES)
def test_a_row_is_bit_identical_in_every_batch(dtype):
    native_ops, _ = both(dtype=dtype)
    rows, weight = random(dtype, 9, 64), random(dtype, 64, seed=2)
    for count in (1, 4, 9):
        assert torch.equal(native_ops.rms_norm(rows[:count], weight), native_ops.rms_norm(rows, weight)[:count])
        assert torch.equal(native_ops.activate_and_mul(rows[:count]), native_ops.activate_and_mul(rows)[:count])
        few, all_rows = (native_ops.activate_and_mul(each, SwiGluClamp(1.702, 1.5)) for each in (rows[:count], rows))
        assert torch.equal(few, all_rows[:count])


@each_row(
    "name, out",
    [("rms_norm", 2), ("add_rms_norm", 4), ("silu_and_mul", 1), ("clamped_swiglu", 1)],
)
def test_kernels_with_wrong_results_are_detected(name, out, monkeypatch):
    native_ops, _ = both()
    assert matches_torch(native_ops, torch.float32)
    monkeypatch.setitem(native_ops.kernels, name, lambda *arguments: ctypes.memset(arguments[out], 0, 16))

    assert not matches_torch(native_ops, torch.float32)


@each_row("is_int8", [False, True])
@each_row("name, out", [("qk_norm_rope", 5), ("attention", 4)])
def test_attention_kernels_with_wrong_results_are_detected(name, out, is_int8, monkeypatch):
    native_ops, _ = both()
    assert matches_torch(native_ops, torch.float32, is_int8=is_int8)
    kernel = f"{name}_int8" if is_int8 else name
    monkeypatch.setitem(native_ops.kernels, kernel, lambda *arguments: ctypes.memset(arguments[out], 0, 16))

    assert not matches_torch(native_ops, torch.float32, is_int8=is_int8)


def test_kernels_with_wrong_results_are_not_used(monkeypatch, caplog):
    monkeypatch.setattr(fused_ops, "matches_torch", lambda *_, **__: False)

    assert type(select_fused_ops(SHAPES[0], torch.zeros(1))) is TorchOps
    assert "other results than torch" in caplog.text


@each_row(
    "sizes, like",
    [(SHAPES[0], torch.zeros(1, dtype=torch.float16)), (replace(SHAPES[0], head_size=514), torch.zeros(1))],
)
def test_unsupported_dtypes_and_sizes_use_torch(sizes, like):
    assert type(select_fused_ops(sizes, like)) is TorchOps
    assert type(select_fused_ops(SHAPES[0], torch.zeros(1))) is NativeOps


def test_norms_in_another_dtype_use_torch():
    model = target("dense-qwen3")
    assert isinstance(model, LlamaModel)
    odd = replace(model.weights, norm=model.weights.norm.double())

    assert type(LlamaModel(model.dimensions, odd, model.context_window, model.limits).ops) is TorchOps


@each_row("dtype", DTYPES)
@each_row("shape", ["dense-qwen3", "dense-mistral", "dense-gpt_oss"])  # a window that is shorter than the text; sinks
@each_row("has_int8_kv", [False, True])
def test_a_node_of_a_tree_has_the_bits_of_plain_decoding(shape, dtype, has_int8_kv):
    model = target(shape, dtype=dtype, has_int8_kv=has_int8_kv)
    generation = Generation(model)
    generation.replace_tokens(list(range(5, 45)))
    with model.pool.acquire_slot(generation.cache, 900):
        list(generation.prefill())
        length, alone = generation.cache.length, list[torch.Tensor]()
        for token in (generation.tokens[-1], *CHAIN):
            alone.append(model.forward(DraftTree(token), generation.cache).logits[0])
            generation.cache.commit([0])
        generation.cache.rollback(length)
        tree, path = DraftTree(generation.tokens[-1]), [0]
        for token in CHAIN:
            tree.add_siblings([7, 9], path[-1], "")  # other nodes before, between and after those of the path
            path.append(tree.add(token, path[-1]))
            tree.add_chain([11, 12], path[-2])
        logits = model.forward(tree, generation.cache).logits

    assert model.is_batch_invariant
    assert torch.equal(torch.stack(alone), logits[path])


@each_row("dtype", DTYPES)
def test_attention_of_a_row_is_bit_identical_in_every_batch(dtype):
    """After 200 committed rows, over 300 rows of keys, as in exact mode."""
    sizes, kv_length = AttentionDimensions(4, 2, 12, 1e-6), 300
    native_ops, _ = both(sizes, dtype)
    keys, values = random(dtype, 2, 1, sizes.kv_heads, kv_length, sizes.head_size, seed=2)
    qkv = random(dtype, 7, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_size, seed=3)
    cos_and_sin = random(dtype, 2, 7, 1, sizes.head_size, seed=4)
    allowed = torch.arange(kv_length) <= 200 + torch.arange(7)[:, None]

    def output(count: int) -> torch.Tensor:
        mask = AttentionMask(allowed[:count], sizes.heads // sizes.kv_heads, keys)

        def kv_location(_layer: int) -> KVLocation:
            return KVLocation(keys.clone(), values.clone(), 200, kv_length)

        empty = torch.empty(0)
        batch = ForwardBatch(empty, {None: mask}, lambda *_new: (keys, values), kv_location)
        inputs = QKVInputs(qkv[:count].clone(), None, None, *cos_and_sin[:, :count].contiguous())
        return native_ops.attention(inputs, batch, 0, None)

    assert all(torch.equal(output(count), output(7)[:count]) for count in range(1, 7))


def test_partly_rotated_heads_are_those_of_torch():
    native_ops, torch_ops = both()
    qkv = random(torch.float32, 2, 8 * 12)
    cos, sin = random(torch.float32, 2, 2, 1, 6, seed=2)

    outputs = []
    for ops in (native_ops, torch_ops):
        stored = torch.zeros(2, 1, 2, 8, 12)
        location = KVLocation(stored[0], stored[1], 0, 2)
        batch = ForwardBatch(
            torch.arange(2),
            {None: None},
            lambda _layer, keys, values: (keys, values),
            lambda _layer, location=location: location,
        )
        outputs.append(ops.attention(QKVInputs(qkv, None, None, cos, sin), batch, 0, None))

    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


def test_a_cache_returns_the_location_of_the_rows_of_a_pass():
    pool = KVPool(KVLayout(((2, 4, 4),), torch.float32, torch.device("cpu")))
    cache: KVCache = pool.open()
    with pool.acquire_slot(cache, 20):
        cache.length = 7
        location = cache.kv_location(0, kv_length=9)

        assert (7, 9) == (location.first_new_row, location.kv_length)
        assert location.keys.data_ptr() == cache.require_slot().layers[0][0].data_ptr()
