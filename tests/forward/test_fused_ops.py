"""What kernels compute between products is what torch computes there, row by row."""

import ctypes
from dataclasses import replace

import pytest
import torch

from specchat.engine.cache import KVCache, KVLayout, KVLocation, KVPool
from specchat.engine.decode import Generation
from specchat.engine.tree import DraftTree
from specchat.forward import fused_ops
from specchat.forward.attention import additive_mask
from specchat.forward.batch import ForwardBatch
from specchat.forward.fused_ops import (
    NATIVE_MAX_EXACT_SCORES,
    NATIVE_MAX_SCORES,
    NATIVE_MIN_ROWS,
    TOLERANCE,
    AttentionDimensions,
    NativeOps,
    QKVInputs,
    TorchOps,
    matches_torch,
    max_native_rows,
    select_fused_ops,
)  # fmt: skip
from specchat.forward.llama import LlamaModel
from specchat.forward.native_ops import native_kernels
from tests.tiny import target

TOLD = [60, 61, 3]  # a chain that a text goes on with
DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [
    AttentionDimensions(4, 2, 12, 1e-6),
    AttentionDimensions(14, 2, 64, 1e-6),
    AttentionDimensions(3, 3, 80, 1e-5),
    AttentionDimensions(8, 1, 512, 1e-6),
]

pytestmark = pytest.mark.skipif(native_kernels().library is None, reason="no C++ compiler here")


def both(heads: AttentionDimensions = SHAPES[0], dtype: torch.dtype = torch.float32) -> tuple[NativeOps, TorchOps]:
    return NativeOps(heads, native_kernels(), dtype), TorchOps(heads)


def near(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.allclose(ours, theirs, TOLERANCE[ours.dtype], TOLERANCE[ours.dtype])


def some(dtype: torch.dtype, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attended(by: TorchOps, dtype: torch.dtype, count: int, sure: int, *, has_norms: bool) -> list[torch.Tensor]:
    """The mix of `count` rows of a tree behind `sure` rows, and the keys and values that are there afterwards."""
    heads = by.dimensions
    pool = KVPool(KVLayout(((heads.kv_heads, heads.head_size, heads.head_size),), dtype, torch.device("cpu")))
    cache = pool.open()
    with pool.acquire_slot(cache, sure + count):
        keys, values = cache.require_slot().layers[0]
        keys[:] = some(dtype, *keys.shape, seed=2)
        values[:] = some(dtype, *values.shape, seed=3)
        cache.length = sure
        sees = torch.rand(count, count, generator=torch.Generator().manual_seed(4)) < 0.5
        sees = torch.cat((torch.ones(count, sure, dtype=torch.bool), sees | torch.eye(count, dtype=torch.bool)), dim=1)
        mask = None if count == 1 else additive_mask(sees, heads.heads // heads.kv_heads, keys)
        places = torch.arange(count)
        laid = ForwardBatch(
            places, places, {None: mask}, cache.write, lambda layer: cache.kv_location(layer, sure + count)
        )
        norms = (
            (some(dtype, heads.head_size, seed=5), some(dtype, heads.head_size, seed=6)) if has_norms else (None, None)
        )
        turn = some(dtype, 2, count, 1, heads.head_size, seed=7)
        states = some(dtype, count, (heads.heads + 2 * heads.kv_heads) * heads.head_size, seed=8)
        mix = by.attention(QKVInputs(states, *norms, turn[0], turn[1]), laid, 0, None)
        return [mix, keys.clone(), values.clone()]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", SHAPES, ids=lambda heads: f"{heads.count}x{heads.size}")
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("has_norms", [True, False])
def test_attention_turns_writes_and_mixes_as_torch_does(dtype, heads, count, has_norms):
    compiled, composed = both(heads, dtype)
    ours, theirs = (attended(by, dtype, count, 37, has_norms=has_norms) for by in (compiled, composed))

    assert all(near(our, their) for our, their in zip(ours, theirs, strict=True))


def test_attention_over_many_scores_is_torchs(monkeypatch):
    heads = SHAPES[0]
    compiled, composed = both(heads)
    asked = []
    monkeypatch.setattr(compiled, "_attend", lambda *arguments: asked.append(arguments))
    sure = NATIVE_MAX_SCORES // (heads.heads * 2)

    ours, theirs = (attended(by, torch.float32, 2, sure, has_norms=True) for by in (compiled, composed))

    assert near(ours[0], theirs[0])
    assert asked == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_sums_and_gates_are_torchs(dtype):
    compiled, composed = both(dtype=dtype)
    rows, more, weight = some(dtype, 3, 77), some(dtype, 3, 77, seed=2), some(dtype, 77, seed=3)

    assert near(compiled.rms_norm(rows, weight), composed.rms_norm(rows, weight))
    assert torch.equal(compiled.add_rms_norm(rows, more, weight)[0], composed.add_rms_norm(rows, more, weight)[0])
    assert near(compiled.add_rms_norm(rows, more, weight)[1], composed.add_rms_norm(rows, more, weight)[1])
    assert near(
        compiled.silu_and_mul(rows[:, :76]), composed.silu_and_mul(rows[:, :76])
    )  # not contiguous, as padded products are


def test_sums_are_rounded_to_bfloat16_as_torch_rounds_them():
    compiled, _ = both(dtype=torch.bfloat16)
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    numbers = bits[bits.isfinite()].view(1, -1)
    for shift in (1.0, 0.0039, 257.0):  # of which some fall between two numbers, and some in the middle
        more = torch.full_like(numbers, shift)
        assert torch.equal(compiled.add_rms_norm(numbers, more, torch.ones_like(numbers[0]))[0], numbers + more)


def test_what_is_no_number_stays_none():
    compiled, _ = both(dtype=torch.bfloat16)
    total, _normed = compiled.add_rms_norm(
        torch.tensor([[float("nan"), 1.0]]).bfloat16(), torch.ones(1, 2).bfloat16(), torch.ones(2).bfloat16()
    )

    assert [True, False] == total[0].isnan().tolist()


def test_gates_are_right_at_both_ends():
    compiled, composed = both()
    gate = torch.tensor([[-1e4, -90.0, -88.0, -20.0, 0.0, 20.0, 90.0, 1e4]])
    rows = torch.cat((gate, torch.ones_like(gate)), dim=1)

    assert torch.allclose(compiled.silu_and_mul(rows), composed.silu_and_mul(rows), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_is_the_same_in_any_company(dtype):
    compiled, _ = both(dtype=dtype)
    rows, weight = some(dtype, 9, 64), some(dtype, 64, seed=2)
    for count in (1, 4, 9):
        assert torch.equal(compiled.rms_norm(rows[:count], weight), compiled.rms_norm(rows, weight)[:count])
        assert torch.equal(compiled.silu_and_mul(rows[:count]), compiled.silu_and_mul(rows)[:count])


@pytest.mark.parametrize(("threads", "few"), [(1, 512), (2, 256), (8, 64), (64, NATIVE_MIN_ROWS)])
def test_the_more_threads_the_fewer_rows_are_few(threads, few, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    assert max_native_rows() == few


def test_many_rows_are_torchs(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    compiled, composed = both()
    monkeypatch.setattr(compiled, "_norm", None)
    monkeypatch.setattr(compiled, "_add", None)
    monkeypatch.setattr(compiled, "_gate", None)
    rows, weight = some(torch.float32, NATIVE_MIN_ROWS + 1, 64), some(torch.float32, 64, seed=2)

    assert torch.equal(compiled.rms_norm(rows, weight), composed.rms_norm(rows, weight))
    assert torch.equal(compiled.add_rms_norm(rows, rows, weight)[1], composed.add_rms_norm(rows, rows, weight)[1])
    assert torch.equal(compiled.silu_and_mul(rows), composed.silu_and_mul(rows))


@pytest.mark.parametrize(("name", "out"), [("_norm", 2), ("_add", 4), ("_gate", 1), ("_turn", 5), ("_attend", 4)])
def test_kernels_that_compute_something_else_are_found_out(name, out, monkeypatch):
    compiled, _ = both()
    assert matches_torch(compiled, torch.float32)
    monkeypatch.setattr(compiled, name, lambda *arguments: ctypes.memset(arguments[out], 0, 16))

    assert not matches_torch(compiled, torch.float32)


def test_kernels_that_compute_something_else_are_not_used(monkeypatch, caplog):
    monkeypatch.setattr(fused_ops, "agrees", lambda *_: False)

    assert type(select_fused_ops(SHAPES[0], torch.zeros(1))) is TorchOps
    assert "compute otherwise" in caplog.text


@pytest.mark.parametrize(
    ("heads", "like"),
    [(SHAPES[0], torch.zeros(1, dtype=torch.float16)), (replace(SHAPES[0], size=514), torch.zeros(1))],
    ids=["float16", "large heads"],
)
def test_what_kernels_are_not_made_for_is_torchs(heads, like):
    assert type(select_fused_ops(heads, like)) is TorchOps
    assert type(select_fused_ops(SHAPES[0], torch.zeros(1))) is NativeOps


def test_norms_in_another_dtype_are_torchs():
    model = target("dense-qwen3")
    assert isinstance(model, LlamaModel)
    odd = replace(model.weights, norm=model.weights.norm.double())

    assert type(LlamaModel(model.dimensions, odd, model.context_window, model.limits).ops) is TorchOps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("most", [NATIVE_MAX_EXACT_SCORES, 0], ids=["kernel", "blocks"])
@pytest.mark.parametrize("count", [2, 4, 5, 8, 16])
def test_exact_mode_is_the_same_to_the_bit_with_kernels(count, most, dtype, monkeypatch):
    monkeypatch.setattr(fused_ops, "FEW_EXACT_SCORES", most)

    def logits(tokens: list[int]) -> torch.Tensor:
        model = target("dense-mistral", exact=True, dtype=dtype)  # whose window is less than the text
        writing = Generation(model)
        writing.replace_tokens(list(range(5, 45)))
        with model.pool.acquire_slot(writing.cache, 900):
            list(writing.prefill())
            tree = DraftTree(writing.tokens[-1])
            tree.add_chain(tokens)
            return model.forward(tree, writing.cache).logits[: len(TOLD)]

    alone = [logits(TOLD[:place])[place] for place in range(len(TOLD))]
    assert torch.equal(torch.stack(alone[:1]), logits(list(range(1, count)))[:1])
    assert torch.equal(torch.stack(alone), logits([*TOLD, *range(60, 60 + count)][:15])[: len(TOLD)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_mix_a_row_alike_in_any_company(dtype):
    """Behind 200 rows, of 300 that are looked at, as in exact mode."""
    heads, width = AttentionDimensions(4, 2, 12, 1e-6), 300
    compiled, _ = both(heads, dtype)
    keys, values = some(dtype, 2, 1, heads.kv_heads, width, heads.head_size, seed=2)
    states = some(dtype, 7, (heads.heads + 2 * heads.kv_heads) * heads.head_size, seed=3)
    turn = some(dtype, 2, 7, 1, heads.head_size, seed=4)
    sees = torch.arange(width) <= 200 + torch.arange(7)[:, None]
    mask = additive_mask(sees, heads.heads // heads.kv_heads, keys)

    def mixes(count: int) -> torch.Tensor:
        def place(_layer: int) -> KVLocation:
            return KVLocation(keys.clone(), values.clone(), 200, width)

        laid = ForwardBatch(sees, sees, {None: mask}, lambda *_new: (keys, values), place, is_batch_invariant=True)
        return compiled.attention(
            QKVInputs(states[:count].clone(), None, None, *turn[:, :count].contiguous()), laid, 0, None
        )

    assert all(torch.equal(mixes(count), mixes(7)[:count]) for count in range(1, 7))


def test_a_cache_says_where_the_rows_of_a_pass_go():
    pool = KVPool(KVLayout(((2, 4, 4),), torch.float32, torch.device("cpu")))
    cache: KVCache = pool.open()
    with pool.acquire_slot(cache, 20):
        cache.length = 7
        place = cache.kv_location(0, kv_length=9)

        assert (7, 9) == (place.first_new_row, place.kv_length)
        assert place.keys.data_ptr() == cache.require_slot().layers[0][0].data_ptr()
