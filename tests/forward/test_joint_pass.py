"""Rows of several texts in one pass: each has the bits of a pass of its own, and so has what it writes to its cache."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

from specchat.engine.cache import KVCache
from specchat.engine.model import FINAL_NORM
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.native.native_ops import NativeBorderError
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_weights import load_llama
from tests.each_row import each_row
from tests.engine.test_model import branching
from tests.forward.test_native_stack import NATIVE
from tests.gguf_models import write_gguf
from tests.quantized_models import quantized_target
from tests.tiny import target

pytestmark = pytest.mark.usefixtures("native_library")

LENGTHS = (40, 3, 17, 29)  # of the texts; the first is longer than the sliding windows


def chain_of(count: int) -> DraftTree:
    tree = DraftTree(9)
    tree.add_chain(list(range(30, 29 + count)))
    return tree


TREES = (branching(), DraftTree(50), chain_of(5), chain_of(2))


def passes_over(model: LlamaModel, slots: ExitStack, count: int) -> list[tuple[DraftTree, KVCache]]:
    """So many texts of mixed lengths, each with its tree."""
    passes = list[tuple[DraftTree, KVCache]]()
    for tree, length in zip(TREES[:count], LENGTHS, strict=False):
        cache = model.pool.open()
        slots.enter_context(model.pool.acquire_slot(cache, 100))
        for start in range(0, length, model.prefill_chunk):
            model.prefill(list(range(5 + start, 5 + min(start + model.prefill_chunk, length))), cache)
        passes.append((tree, cache))
    return passes


def written(cache: KVCache, count: int) -> list[torch.Tensor]:
    """The rows that a pass wrote."""
    stacks = cache.require_slot().stacks.values()
    return [stack[:, :, cache.length : cache.length + count].clone() for stack in stacks]


def check(model: LlamaModel, passes: list[tuple[DraftTree, KVCache]]) -> None:
    together = model.forward_texts(passes)
    rows = [written(cache, len(tree)) for tree, cache in passes]
    for (tree, cache), ours, ours_written in zip(passes, together, rows, strict=True):
        for each in cache.require_slot().stacks.values():
            each[:, :, cache.length :] = 0
        alone = model.forward(tree, cache)
        assert ours.hidden_states is not None
        assert alone.hidden_states is not None
        assert torch.equal(ours.logits, alone.logits)
        assert torch.equal(ours.hidden_states, alone.hidden_states)
        assert all(map(torch.equal, ours_written, written(cache, len(tree))))


def check_texts(model: LlamaModel) -> None:
    """Passes of several texts, of which one ends after the first."""
    assert model.joins_texts
    model.set_hidden_state_layers((0, 2, FINAL_NORM))
    for count in (1, 2, 4):
        with ExitStack() as slots:
            passes = passes_over(model, slots, count)
            check(model, passes)
            for tree, cache in passes:
                cache.commit([0, 1] if len(tree) > 1 else [0])
            check(model, passes[-1:] + passes[1:-1])


@each_row("is_int8", [False, True])
@each_row("dtype", [torch.float32, torch.bfloat16])
@each_row("name", NATIVE, shares=4)
def test_each_text_has_the_bits_of_its_own_pass(name, dtype, is_int8):
    model = target(f"dense-{name}", dtype=dtype, has_int8_kv=is_int8)
    assert isinstance(model, LlamaModel)

    check_texts(model)


@each_row("storage", ["Q4_1", "Q8_0"])
def test_blocks_of_a_file_compute_each_text_as_alone(monkeypatch, tmp_path, storage):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", "qwen2", storage=storage))
    limits = BatchLimits(prefill_chunk=16)

    check_texts(load_llama(folder, torch.bfloat16, torch.device("cpu"), None, limits, quant_format="gguf"))


@each_row("dtype", ["float32", "bfloat16"])
def test_weights_of_8_bits_compute_each_text_as_alone(dtype):
    check_texts(quantized_target("int8", dtype))


def test_rows_beyond_a_cache_of_one_text_are_refused_before_any_is_written():
    model = target("dense-llama")
    assert isinstance(model, LlamaModel)
    with ExitStack() as slots:
        passes = passes_over(model, slots, 2)
        slot = passes[1][1].require_slot()
        passes[1][1].length = slot.rows
        before = written(passes[0][1], 5)

        with pytest.raises(NativeBorderError):
            model.forward_texts(passes)

        assert all(map(torch.equal, before, written(passes[0][1], 5)))


@pytest.mark.parametrize("shape", ["dense-qwen3_5", "dense-mixtral", "graphs-llama"])
def test_these_networks_compute_texts_in_turns(shape):
    model = target(shape)
    assert isinstance(model, LlamaModel)

    assert not model.joins_texts
