"""Law 1 for quantized weights and KV caches: no drafter can change the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.forward import fused_ops
from specchat.forward.batch import BatchLimits
from specchat.forward.linear import linear, quant_linear
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.native.native_ops import NativeKernels
from specchat.weights.llama_weights import load_llama
from tests.cover import matrix
from tests.each_row import each_row
from tests.engine.test_lossless import DRAFTERS, HEADS, PLANS, SAMPLERS, two_turns
from tests.quantized_models import DTYPES, quantized_target
from tests.tiny import saved, target
from tests.tiny_heads import drafter_of

SMALLER = ["int8", "fp8", "nf4", "nf4-double"]
STOPS = PLANS["stop"]


@lru_cache
def plain_texts(weights: str, dtype: str, sampler: str) -> list[list[int]]:
    return two_turns(quantized_target(weights, dtype), Drafter(), SAMPLERS[sampler], STOPS)


@pytest.mark.dear
@pytest.mark.parametrize(
    ("weights", "dtype", "drafter", "sampler"),
    matrix(SMALLER, list(DTYPES), list(DRAFTERS), ["greedy", "T1", "T0.8-penalty"], rounds=2),
)
def test_no_drafter_can_change_the_text_of_quantized_weights(weights, dtype, drafter, sampler):
    texts = two_turns(quantized_target(weights, dtype), DRAFTERS[drafter]("dense-qwen3"), SAMPLERS[sampler], STOPS)

    assert texts == plain_texts(weights, dtype, sampler)


@pytest.mark.dear
@pytest.mark.parametrize(("head", "dtype", "sampler"), matrix(HEADS, list(DTYPES), ["greedy", "T1"], rounds=1))
def test_no_head_can_change_the_text_of_int8_weights(head, dtype, sampler):
    def turns(made: Callable[[Model], Drafter]) -> list[list[int]]:
        shape = BatchLimits(prefill_chunk=16, max_rows=32, exact=True)
        model = load_llama(saved("qwen3"), DTYPES[dtype], torch.device("cpu"), None, shape, quant_format="int8")
        return two_turns(model, made(model), SAMPLERS[sampler], STOPS)

    assert turns(lambda model: drafter_of(head, model)) == turns(lambda _model: Drafter())


MIXED = [("nf4", "float"), ("nf4", "nf4"), ("int8", "nf4"), ("float", "int8"), ("fp8", "int8")]


@pytest.mark.full
@each_row("weights, draft_format", MIXED)
def test_target_and_draft_model_have_their_own_weight_formats(weights, draft_format):
    drafter = DraftModelDrafter(quantized_target(draft_format, "bfloat16", exact=False, layers=1))

    texts = two_turns(quantized_target(weights, "bfloat16"), drafter, SAMPLERS["T1"], STOPS)

    assert texts == plain_texts(weights, "bfloat16", "T1")


def test_a_matmul_that_is_not_batch_invariant_gets_one_row_count(monkeypatch):
    monkeypatch.setattr(quant_linear, "supports_nf4_packed", lambda: False)
    widths = set[int]()
    model = quantized_target("nf4")
    head = model.weights.lm_head

    def watched(rows):
        widths.add(len(rows))
        return head(rows)

    object.__setattr__(model.weights, "lm_head", watched)
    texts = two_turns(model, DRAFTERS["chaos"]("dense-qwen3"), SAMPLERS["T1"], STOPS)

    assert widths == {1, 16}  # the last row of a prompt, and steps
    assert texts == two_turns(quantized_target("nf4"), Drafter(), SAMPLERS["T1"], STOPS)


def test_batch_invariant_matmuls_compute_only_the_nodes():
    model, widths = quantized_target("int8"), set[int]()
    head = model.weights.lm_head

    def watched(rows):
        widths.add(len(rows))
        return head(rows)

    object.__setattr__(model.weights, "lm_head", watched)
    two_turns(model, Drafter(), SAMPLERS["greedy"], STOPS)

    assert widths == {1}


@lru_cache
def plain_texts_over_int8_kv(dtype: str, sampler: str) -> list[list[int]]:
    return two_turns(int8_kv_target(dtype), Drafter(), SAMPLERS[sampler], STOPS)


def int8_kv_target(dtype: str) -> Model:
    return target("dense-qwen3", dtype=DTYPES[dtype], has_int8_kv=True)


@pytest.mark.parametrize(
    ("dtype", "drafter", "sampler"), matrix(list(DTYPES), list(DRAFTERS), ["greedy", "T1", "T0.8-penalty"], rounds=1)
)
def test_no_drafter_can_change_the_text_of_a_kv_cache_in_8_bits(dtype, drafter, sampler):
    texts = two_turns(int8_kv_target(dtype), DRAFTERS[drafter]("dense-qwen3"), SAMPLERS[sampler], STOPS)

    assert texts == plain_texts_over_int8_kv(dtype, sampler)


@each_row("head", HEADS)
def test_no_head_can_change_the_text_of_a_kv_cache_in_8_bits(head):
    model = int8_kv_target("float32")

    assert two_turns(model, drafter_of(head, model), SAMPLERS["T1"], STOPS) == plain_texts_over_int8_kv("float32", "T1")


def test_a_kv_cache_in_8_bits_without_native_kernels_has_the_same_text_in_exact_mode(monkeypatch):
    monkeypatch.setattr(fused_ops, "native_kernels", lambda: NativeKernels(None))
    monkeypatch.setattr(linear, "native_kernels", lambda: NativeKernels(None))
    model = target("dense-qwen3", exact=True, has_int8_kv=True)

    texts = [two_turns(model, who, SAMPLERS["T1"], STOPS) for who in (Drafter(), DRAFTERS["self"]("dense-qwen3"))]

    assert not model.is_batch_invariant
    assert texts[0] == texts[1]


def test_windows_and_scaled_scores_do_not_change_the_text_of_a_kv_cache_in_8_bits():
    model = target("dense-gemma3", has_int8_kv=True)

    texts = [two_turns(model, who, SAMPLERS["T1"], STOPS) for who in (Drafter(), DRAFTERS["self"]("dense-gemma3"))]

    assert texts[0] == texts[1]
    assert isinstance(model, LlamaModel) and model.pool.layout.is_int8
