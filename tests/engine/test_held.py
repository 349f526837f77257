"""Law 1 for weights that are held in fewer bits: in exact mode, who guesses cannot change the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.forward import linear
from specchat.forward.batch import EXACT_ROWS, BatchLimits
from specchat.forward.linear import Fp8Linear, probe_fp8_matmul
from specchat.models.llama_weights import load_llama
from tests.cover import matrix
from tests.engine.test_lossless import DRAFTERS, HEADS, PLANS, SAMPLERS, two_turns
from tests.held import DTYPES, held_target
from tests.tiny import saved
from tests.tiny_heads import drafter_of

SMALLER = ["int8", "fp8", "nf4", "nf4-double"]
STOPS = PLANS["stop"]


@lru_cache
def plainly(weights: str, dtype: str, sampler: str) -> list[list[int]]:
    return two_turns(held_target(weights, dtype), Drafter(), SAMPLERS[sampler], STOPS)


@pytest.mark.parametrize(
    ("weights", "dtype", "drafter", "sampler"),
    matrix(SMALLER, list(DTYPES), list(DRAFTERS), ["greedy", "T1", "T0.8-penalty"]),
)
def test_no_drafter_can_change_the_text_of_smaller_weights(weights, dtype, drafter, sampler):
    texts = two_turns(held_target(weights, dtype), DRAFTERS[drafter]("dense-qwen3"), SAMPLERS[sampler], STOPS)

    assert texts == plainly(weights, dtype, sampler)


@pytest.mark.parametrize(("head", "dtype", "sampler"), matrix([*HEADS, "exit"], list(DTYPES), ["greedy", "T1"]))
def test_no_head_and_no_exit_can_change_the_text_of_integers(head, dtype, sampler):
    def turns(made: Callable[[Model], Drafter]) -> list[list[int]]:
        shape = BatchLimits(prefill_chunk=16, max_rows=32, exact=True)
        model = load_llama(saved("qwen3"), DTYPES[dtype], torch.device("cpu"), None, shape, quant_format="int8")
        return two_turns(model, made(model), SAMPLERS[sampler], STOPS)

    assert turns(lambda model: drafter_of(head, model)) == turns(lambda _model: Drafter())


MIXED = [("nf4", "float"), ("nf4", "nf4"), ("int8", "nf4"), ("float", "int8"), ("fp8", "int8")]


@pytest.mark.parametrize(("weights", "of_draft"), MIXED)
def test_target_and_draft_are_held_each_in_their_own_way(weights, of_draft):
    drafter = DraftModelDrafter(held_target(of_draft, "bfloat16", exact=False, layers=1))

    texts = two_turns(held_target(weights, "bfloat16"), drafter, SAMPLERS["T1"], STOPS)

    assert texts == plainly(weights, "bfloat16", "T1")


@pytest.mark.parametrize("drafter", ["chaos", "draft"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_drafter_can_change_the_text_of_floats_of_eight_bits_as_a_card_multiplies_them(dtype, drafter, monkeypatch):
    if not probe_fp8_matmul(torch.device("cpu")):
        pytest.skip("torch multiplies no floats of 8 bits here")
    monkeypatch.setattr(linear, "fp8_product", probe_fp8_matmul)
    model = held_target("fp8", dtype)
    assert isinstance(model.weights.lm_head, Fp8Linear)

    texts = [two_turns(model, who, SAMPLERS["T1"], STOPS) for who in (Drafter(), DRAFTERS[drafter]("dense-qwen3"))]

    assert texts[0] == texts[1]


def test_a_product_that_is_not_steady_is_given_one_width(monkeypatch):
    monkeypatch.setattr(linear, "has_packed_4bit", lambda: False)  # bitsandbytes unpacks, and float32 goes to MKL
    monkeypatch.setattr("specchat.forward.llama.steady_from", lambda *_given: EXACT_ROWS)
    widths = set[int]()
    model = held_target("nf4")
    head = model.weights.lm_head

    def watched(rows):
        widths.add(len(rows))
        return head(rows)

    object.__setattr__(model.weights, "head", watched)
    texts = two_turns(model, DRAFTERS["chaos"]("dense-qwen3"), SAMPLERS["T1"], STOPS)

    assert widths == {1, 16}  # the last row of a prompt, and steps
    assert texts == two_turns(held_target("nf4"), Drafter(), SAMPLERS["T1"], STOPS)


def test_steady_products_compute_the_nodes_alone():
    model, widths = held_target("int8"), set[int]()
    head = model.weights.lm_head

    def watched(rows):
        widths.add(len(rows))
        return head(rows)

    object.__setattr__(model.weights, "head", watched)
    two_turns(model, Drafter(), SAMPLERS["greedy"], STOPS)

    assert widths == {1}
