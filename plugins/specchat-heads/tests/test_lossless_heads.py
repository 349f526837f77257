"""Law 1 for the heads of this plugin: a drafter can make decoding faster, never different."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from plugin_heads import KINDS

from specchat.drafters.plugin_guard import PluginDrafterGuard
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from tests.cover import matrix
from tests.engine.test_lossless import PLANS, SAMPLERS, STOPS, plainly, two_turns
from tests.tiny import target
from tests.tiny_heads import drafter_of


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


@pytest.mark.parametrize("head", KINDS)
def test_behind_the_guard_of_plugins_it_drafts_and_changes_nothing(head):
    model, errors = target("dense-llama"), list[BaseException]()
    drafter = drafter_of(head, model)
    guard = PluginDrafterGuard(head, drafter, model.vocab_size, errors.append, 60.0)
    guard.hidden_state_layers = drafter.hidden_state_layers

    texts = two_turns(model, guard, SAMPLERS["T0.8-penalty"], PLANS["open"])

    assert texts == plainly("dense-llama", "T0.8-penalty", "open")
    assert [] == errors
    assert drafter.hidden_states.end > 0
