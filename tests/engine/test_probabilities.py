"""The probabilities of committed tokens: those of the model, computed only on request, and without an effect."""

from __future__ import annotations

import pytest
import torch

from specchat.engine import decode
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.sampling import Sampler
from tests.each_row import each_row
from tests.tiny import Chaos, target, write

PROMPT = [7, 3, 9, 12, 7, 3, 9, 12, 40, 41, 42]
LIMIT = 24


def steps_of(sampler: Sampler, *, wants_probabilities: bool) -> list[Step]:
    drafter = Chaos()
    generation = Generation(target(), (drafter,))
    generation.replace_tokens(list(PROMPT))
    config = GenerationConfig(drafter, sampler, 8, LIMIT, wants_probabilities=wants_probabilities)
    return write(generation, config)


@each_row("sampler", [Sampler(1.0, seed=1), Sampler()], shares=2)
def test_they_are_those_of_the_model_after_the_text_so_far(sampler):
    steps = steps_of(sampler, wants_probabilities=True)

    text = list(PROMPT)
    for step in steps:
        for token, known in zip(step.committed_tokens, step.probabilities, strict=True):
            generation = Generation(target())
            generation.replace_tokens([*text, token])
            with generation.target.pool.acquire_slot(generation.cache, generation.rows_needed(1)):
                *_, logits = [generation.target.prefill([each], generation.cache).logits for each in text]
            expected = logits[-1].float().softmax(dim=-1)
            assert known.committed == pytest.approx(float(expected[token]), abs=1e-4)
            assert [share for _, share in known.likeliest] == pytest.approx(expected.topk(20).values.tolist(), abs=1e-4)
            text.append(token)
        if len(text) > len(PROMPT) + 8:
            return


@pytest.mark.full
@each_row("sampler", [Sampler(), Sampler(1.0, seed=1)])
def test_who_wants_them_gets_the_same_steps(sampler):
    torch.manual_seed(0)
    without = steps_of(sampler, wants_probabilities=False)
    torch.manual_seed(0)
    with_them = steps_of(sampler, wants_probabilities=True)

    assert [step.committed_tokens for step in with_them] == [step.committed_tokens for step in without]


def test_nothing_is_computed_for_who_does_not_want_them(monkeypatch):
    monkeypatch.setattr(decode, "token_probabilities", None)  # a call would fail

    assert all(step.probabilities == () for step in steps_of(Sampler(), wants_probabilities=False))
