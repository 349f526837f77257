"""Law 1 for the drafters of this plugin: a drafter can make decoding faster, never different."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from character_tokenizer import Letters
from plugin_heads import KINDS

from specchat.drafters.plugin_guard import PluginDrafterGuard
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.forward.batch import BatchLimits
from specchat.weights.llama_weights import load_llama
from specchat_heads.early_exit import EarlyExit
from specchat_heads.lookahead import Lookahead
from specchat_heads.retokenize import RetokenizedDraftModel
from specchat_heads.token_recycling import TokenRecycling
from tests.cover import matrix
from tests.engine import test_grammar as under_a_grammar
from tests.engine.test_at_once import assert_a_head_that_texts_share_changes_none
from tests.engine.test_lossless import PLANS, SAMPLERS, STOPS, TARGETS, plainly, two_turns
from tests.engine.test_quantized_lossless import int8_kv_target
from tests.tiny import saved, small, target
from tests.tiny_heads import CPU, drafter_of

EXIT = "exit"
LEARNING = {"recycling": TokenRecycling, "lookahead": Lookahead}


@pytest.mark.parametrize(
    ("shape", "head", "sampler", "stop"),
    matrix(["gemma3", "dense-llama", "graphs-mistral"], KINDS, list(SAMPLERS), list(PLANS), rounds=3),
)
def test_no_head_can_change_the_text(shape, head, sampler, stop):
    model = target(shape)
    texts = two_turns(model, drafter_of(head, model), SAMPLERS[sampler], PLANS[stop])

    assert texts == plainly(shape, sampler, stop)


def made(drafter: str, model: Model) -> Drafter:
    return EarlyExit(model, exit_layer=2) if drafter == EXIT else drafter_of(drafter, model)


@pytest.mark.dear
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_assistant_can_change_the_text(sampler):
    model = target("dense-gemma4")
    texts = two_turns(model, drafter_of("assistant", model), SAMPLERS[sampler], STOPS)

    assert texts == plainly("dense-gemma4", sampler, "stop")


@pytest.mark.dear
@pytest.mark.parametrize("sampler", ["greedy", "T1", "T0.8-penalty"])
def test_an_assistant_that_texts_share_at_once_changes_none(sampler):
    assert_a_head_that_texts_share_changes_none("assistant", "dense-gemma4", sampler)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_early_exit_can_change_the_text(sampler):
    texts = two_turns(target("dense-qwen3"), made(EXIT, target("dense-qwen3")), SAMPLERS[sampler], STOPS)

    assert texts == plainly("dense-qwen3", sampler, "stop")


@pytest.mark.parametrize(
    ("shape", "sampler", "stop"),
    matrix(["gemma3", "dense-llama", "graphs-mistral", "dense-qwen3_5"], list(SAMPLERS), list(PLANS), rounds=2),
)
def test_no_draft_model_with_other_tokens_can_change_the_text(shape, sampler, stop):
    drafter = RetokenizedDraftModel(small(shape), Letters(7), Letters())

    assert two_turns(target(shape), drafter, SAMPLERS[sampler], PLANS[stop]) == plainly(shape, sampler, stop)


@pytest.mark.parametrize("drafter", [*KINDS, EXIT])
def test_no_drafter_can_change_the_text_in_exact_mode(drafter):
    def turns(who: Callable[[Model], Drafter]) -> list[list[int]]:
        model = target("dense-qwen3", exact=True)
        return two_turns(model, who(model), SAMPLERS["T1"], STOPS)

    assert turns(lambda model: made(drafter, model)) == turns(lambda _model: Drafter())


def int8_target() -> Model:
    limits = BatchLimits(prefill_chunk=16, max_rows=32, exact=True)
    return load_llama(saved("qwen3"), torch.float32, CPU, None, limits, quant_format="int8")


@pytest.mark.parametrize("drafter", ["eagle", "medusa", EXIT])
def test_no_drafter_can_change_the_text_of_int8_weights_or_a_kv_cache_in_8_bits(drafter):
    def turns(model: Model, who: Callable[[Model], Drafter]) -> list[list[int]]:
        return two_turns(model, who(model), SAMPLERS["T1"], STOPS)

    for model_of in (int8_target, partial(int8_kv_target, "float32")):
        ours, plain = turns(model_of(), partial(made, drafter)), turns(model_of(), lambda _model: Drafter())
        assert ours == plain


@pytest.mark.parametrize("drafter", ["medusa", EXIT])
@pytest.mark.parametrize("sampler", ["greedy", "T1"])
def test_no_drafter_can_change_the_text_under_a_grammar(drafter, sampler, monkeypatch):
    monkeypatch.setitem(under_a_grammar.DRAFTERS, drafter, partial(made, drafter))

    assert under_a_grammar.answer(drafter, sampler) == under_a_grammar.plainly(sampler)


@pytest.mark.parametrize(
    ("shape", "drafter", "sampler", "stop"),
    matrix(TARGETS, list(LEARNING), list(SAMPLERS), list(PLANS), seldom=("qwen2", "qwen3", "mistral"), rounds=3),
)
def test_no_drafter_without_a_head_can_change_the_text(shape, drafter, sampler, stop):
    texts = two_turns(target(shape), LEARNING[drafter](), SAMPLERS[sampler], PLANS[stop])

    assert texts == plainly(shape, sampler, stop)


@pytest.mark.parametrize("drafter", LEARNING)
def test_behind_the_guard_of_plugins_a_drafter_without_a_head_drafts_and_changes_nothing(drafter):
    model, errors = target("dense-llama"), list[BaseException]()
    made = LEARNING[drafter]()
    guard = PluginDrafterGuard(drafter, made, model.vocab_size, errors.append, 60.0)

    texts = two_turns(model, guard, SAMPLERS["T0.8-penalty"], PLANS["open"])

    assert texts == plainly("dense-llama", "T0.8-penalty", "open")
    assert [] == errors
    assert len(made.propose(DraftContext(texts[-1], SAMPLERS["greedy"], 8))) > 1


@pytest.mark.parametrize("head", KINDS)
def test_behind_the_guard_of_plugins_it_drafts_and_changes_nothing(head):
    model, errors = target("dense-llama"), list[BaseException]()
    drafter = drafter_of(head, model)
    guard = PluginDrafterGuard(head, drafter, model.vocab_size, errors.append, 60.0)
    guard.hidden_state_layers = drafter.hidden_state_layers

    texts = two_turns(model, guard, SAMPLERS["T0.8-penalty"], PLANS["open"])

    assert texts == plainly("dense-llama", "T0.8-penalty", "open")
    assert [] == errors
    assert drafter.memory_bytes() > 0  # it has seen the target's hidden states
