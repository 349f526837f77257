"""The embedded heads of this plugin's kinds, and the early exit of the embedded target: lossless, and no chance."""

from __future__ import annotations

from functools import lru_cache

import pytest

from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.heads.detect import inspect_head, target_dimensions
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.selftest import self_test
from specchat.drafters.heads.spec import mismatches
from specchat.engine.decode import GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.weights.load_options import EMBEDDED
from specchat_heads.early_exit import EarlyExit, exit_layer
from specchat_heads.medusa import Medusa
from tests.cover import matrix
from tests.drafters import test_trained_heads as built_in
from tests.drafters.test_selftest import CHANCE, PROMPTS
from tests.tiny import write
from tests.tiny_heads import CPU, writing_of

VARIANTS = ["eagle", "eagle chain", "medusa", "exit"]


def drafter_of(variant: str) -> Drafter:
    target, (name, _, growth) = built_in.target(), variant.partition(" ")
    if name == "exit":
        return EarlyExit(target, exit_layer(EMBEDDED / "target"))
    head = load_head(inspect_head(EMBEDDED / name), target, None, CPU)
    return Medusa(head, target) if name == "medusa" else EagleDrafter(head, target, CHAIN_CONFIG if growth else None)


@lru_cache
def written(variant: str, sampler: str, question: str) -> tuple[list[int], list[Step]]:
    drafter, rules = drafter_of(variant), built_in.SAMPLERS[sampler]
    writing = writing_of(built_in.target(), drafter)
    writing.replace_tokens(built_in.prompt(question))
    steps = write(writing, GenerationConfig(drafter, rules, max_draft_tokens=16, max_new_tokens=40))
    writing.close()
    return writing.tokens, steps


@pytest.mark.parametrize(
    ("variant", "sampler", "question"), matrix(VARIANTS, list(built_in.SAMPLERS), list(built_in.QUESTIONS))
)
def test_no_trained_head_changes_the_text(variant, sampler, question):
    assert written(variant, sampler, question)[0] == built_in.written("plain", sampler, question)[0]


@pytest.mark.parametrize(("variant", "least"), [("medusa", 1.8), ("eagle", 1.7), ("exit", 3.0)])
def test_a_trained_head_beats_chance_by_far(variant, least):
    steps = [step for question in built_in.QUESTIONS for step in written(variant, "greedy", question)[1]]

    assert sum(len(step.committed_tokens) for step in steps) / len(steps) > least  # chance: 1 / 8192


@pytest.mark.parametrize(("head", "depths", "at_least"), [("medusa", 4, 0.1), ("eagle", 3, 0.1)])
def test_the_self_test_finds_that_it_fits(head, depths, at_least):
    spec, target = inspect_head(EMBEDDED / head), built_in.target()

    agreement = self_test(load_head(spec, target, None, CPU), target, PROMPTS)

    assert [] == mismatches(spec, target_dimensions(EMBEDDED / "target"))
    assert depths == len(agreement.greedy_by_depth)
    assert all(share > at_least > 500 * CHANCE for share in agreement.greedy_by_depth)
