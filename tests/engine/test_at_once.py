"""Texts that are decoded at once, step by step in turns, are those of each alone; law 1 for several answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from random import Random

import pytest

from specchat.chooser.chooser import Chooser
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.engine import decode
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from tests.cover import matrix
from tests.engine.test_lossless import DRAFTERS, HEADS, PROMPT, SAMPLERS
from tests.tiny import target, write
from tests.tiny_heads import DRAFTERS as HEAD_DRAFTERS
from tests.tiny_heads import tiny_head, writing_of

TEXTS = 5
LIMITS = (30, 12, 25, 3, 18)
SHARED = [5, 6, 7, 8] * 12  # what some prompts begin with


def prompt_of(number: int) -> list[int]:
    return [*SHARED[: 16 * (number % 2)], *PROMPT[number:], 20 + number]


def config_of(number: int, sampler: Sampler, drafter: Drafter) -> GenerationConfig:
    seed = None if sampler.seed is None else sampler.seed + number
    drawn = replace(sampler, seed=seed)
    return GenerationConfig(drafter, drawn, max_draft_tokens=8, max_new_tokens=LIMITS[number])


def steps_of(writing: Generation, config: GenerationConfig) -> Iterator[None]:
    for _length in writing.prefill():
        yield
    for _step in writing.decode(config):
        yield


def texts_at_once(model: Model, writings: list[Generation], sampler: Sampler, seed: int) -> list[list[int]]:
    """The texts, of which a step of one that is drawn by `seed` follows the other."""
    dice, running = Random(seed), list[Iterator[None]]()
    with ExitStack() as slots:
        for number, writing in enumerate(writings):
            writing.replace_tokens(prompt_of(number))
            config = config_of(number, sampler, writing.drafters[0])
            slots.enter_context(model.pool.acquire_slot(writing.cache, writing.rows_needed(config.max_new_tokens)))
            running.append(steps_of(writing, config))
        while running:
            if next(chosen := dice.choice(running), "ended") == "ended":
                running.remove(chosen)
    return [list(writing.tokens) for writing in writings]


def texts_alone(model: Model, sampler: Sampler) -> list[list[int]]:
    texts = list[list[int]]()
    for number in range(TEXTS):
        writing = writing_of(model, Drafter())
        writing.replace_tokens(prompt_of(number))
        write(writing, config_of(number, sampler, writing.drafters[0]))
        texts.append(list(writing.tokens))
    return texts


@pytest.mark.dear
@pytest.mark.parametrize(
    ("shape", "drafter", "sampler"),
    matrix(["dense-llama", "graphs-mistral", "dense-qwen3_5", "gemma3"], list(DRAFTERS), list(SAMPLERS), rounds=2),
)
def test_texts_at_once_are_those_of_each_alone(shape, drafter, sampler):
    model = target(shape)
    writings = [writing_of(model, DRAFTERS[drafter](shape)) for _ in range(TEXTS)]

    assert texts_at_once(model, writings, SAMPLERS[sampler], seed=3) == texts_alone(target(shape), SAMPLERS[sampler])


def assert_a_head_that_texts_share_changes_none(head: str, shape: str, sampler: str) -> None:
    model = target(shape)
    shared = tiny_head(head, model)
    model.set_hidden_state_layers(shared.hidden_state_layers)
    writings = [writing_of(model, HEAD_DRAFTERS[type(shared)](shared, model, None)) for _ in range(TEXTS)]

    assert texts_at_once(model, writings, SAMPLERS[sampler], seed=4) == texts_alone(target(shape), SAMPLERS[sampler])


@pytest.mark.dear
@pytest.mark.parametrize(("head", "sampler"), matrix(HEADS, ["greedy", "T1", "T0.8-penalty"], rounds=2))
def test_heads_that_texts_share_at_once_change_none(head, sampler):
    assert_a_head_that_texts_share_changes_none(head, "dense-llama", sampler)


@pytest.mark.full
def test_drafters_of_one_draft_model_keep_their_rows_while_their_texts_run():
    model = target("dense-llama")
    drafters = [DRAFTERS["draft"]("dense-llama") for _ in range(TEXTS)]
    pool = drafters[0].model.pool
    for each in drafters[1:]:
        each.model, each.cache = drafters[0].model, pool.open()
    pool.target_pool = model.pool
    offloaded = []
    pool._offload = offloaded.append

    texts = texts_at_once(model, [writing_of(model, each) for each in drafters], Sampler(), seed=5)

    assert texts == texts_alone(target("dense-llama"), Sampler())
    assert not offloaded


def test_what_a_pass_costs_is_not_learned_from_the_passes_of_others(monkeypatch):
    """A step of another text comes between two steps, and makes the clock leap."""
    clock = iter(range(10**6))
    monkeypatch.setattr(decode, "pass_seconds", lambda: float(next(clock)))
    model, costs = target("dense-llama"), Costs({1024: Curve({1: 1.0, 16: 1.0})})
    writings = [writing_of(model, Chooser({"lookup": DRAFTERS["lookup"]("")}, costs, clock=lambda: 0.0)) for _ in "ab"]
    learned = []
    costs.learn_pass = lambda _length, _rows, seconds: learned.append(seconds)

    texts_at_once(model, writings, Sampler(), seed=6)

    assert learned
    assert set(learned) == {1.0}
