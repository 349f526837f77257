"""Law 1 for the drafters of this plugin: a drafter can make decoding faster, never different."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from plugin_heads import KINDS

from specchat.drafters.plugin_guard import PluginDrafterGuard
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat_heads.lookahead import Lookahead
from specchat_heads.token_recycling import TokenRecycling
from tests.cover import matrix
from tests.engine.test_lossless import PLANS, SAMPLERS, STOPS, TARGETS, plainly, two_turns
from tests.tiny import target
from tests.tiny_heads import drafter_of

LEARNING = {"recycling": TokenRecycling, "lookahead": Lookahead}


@pytest.mark.parametrize(
    ("shape", "head", "sampler", "stop"),
    matrix(["gemma3", "dense-llama", "graphs-mistral"], KINDS, list(SAMPLERS), list(PLANS), rounds=3),
)
def test_no_head_can_change_the_text(shape, head, sampler, stop):
    model = target(shape)
    texts = two_turns(model, drafter_of(head, model), SAMPLERS[sampler], PLANS[stop])

    assert texts == plainly(shape, sampler, stop)


@pytest.mark.parametrize("head", KINDS)
def test_no_head_can_change_the_text_in_exact_mode(head):
    def turns(made: Callable[[Model], Drafter]) -> list[list[int]]:
        model = target("dense-qwen3", exact=True)
        return two_turns(model, made(model), SAMPLERS["T1"], STOPS)

    assert turns(lambda model: drafter_of(head, model)) == turns(lambda _model: Drafter())


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
