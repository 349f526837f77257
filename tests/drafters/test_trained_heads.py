"""The embedded heads: lossless, and far better than chance."""

from __future__ import annotations

from functools import lru_cache

import pytest

from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.engine.decode import GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.forward.llama.llama import LlamaModel
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load import load_model
from specchat.weights.load_options import EMBEDDED, LoadOptions
from tests.cover import matrix
from tests.tiny import write
from tests.tiny_heads import CPU, writing_of

QUESTIONS = {
    "edit": "Rename `width` to `breadth`.\n\n```python\ndef area(width, height):\n    return width * height\n```",
    "code": "Write a Python function that returns the largest number of a list.",
    "chat": "What is a list in Python? Explain it.",
}
SAMPLERS = {"greedy": Sampler(), "T0.8": Sampler(0.8, seed=3), "penalty": Sampler(0.8, repetition_penalty=1.3, seed=5)}
VARIANTS = ["eagle3", "eagle3 chain", "mtp", "mtp chain"]


@lru_cache
def target() -> LlamaModel:
    model = load_model(EMBEDDED / "target", LoadOptions(dtype="float32", device="cpu"))
    assert isinstance(model, LlamaModel)
    model.set_hidden_state_layers((2, 6, 9, -1))
    return model


@lru_cache
def head(name: str) -> EagleHead:
    return load_head(inspect_head(EMBEDDED / name), target(), None, CPU)


def drafter_of(variant: str) -> Drafter:
    name, _, growth = variant.partition(" ")
    if name == "plain":
        return Drafter()
    return EagleDrafter(head(name), target(), CHAIN_CONFIG if growth else None)


@lru_cache
def prompt(question: str) -> list[int]:
    tokenizer = Tokenizer(EMBEDDED / "target")
    return tokenizer.encode(
        tokenizer.chat.render([{"role": "user", "content": QUESTIONS[question]}], True), parse_special=True
    )


@lru_cache
def written(variant: str, sampler: str, question: str) -> tuple[list[int], list[Step]]:
    drafter = drafter_of(variant)
    writing = writing_of(target(), drafter)
    writing.replace_tokens(prompt(question))
    steps = write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=16, max_new_tokens=40))
    writing.close()
    return writing.tokens, steps


@pytest.mark.dear
@pytest.mark.parametrize(
    ("variant", "sampler", "question"), matrix(VARIANTS, list(SAMPLERS), list(QUESTIONS), seldom=("T0.8", "penalty"))
)
def test_no_trained_head_changes_the_text(variant, sampler, question):
    assert written(variant, sampler, question)[0] == written("plain", sampler, question)[0]


@pytest.mark.full
@pytest.mark.dear
@pytest.mark.parametrize(("variant", "least"), [("eagle3", 2.5), ("mtp", 3.0), ("mtp chain", 2.0)])
def test_a_trained_head_beats_chance_by_far(variant, least):
    steps = [step for question in QUESTIONS for step in written(variant, "greedy", question)[1]]

    assert sum(len(step.committed_tokens) for step in steps) / len(steps) > least  # chance: 1 / 8192


@pytest.mark.full
def test_a_tree_is_accepted_longer_than_a_chain():
    def passes(variant: str) -> int:
        return sum(len(written(variant, sampler, "chat")[1]) for sampler in ("greedy", "T0.8"))

    assert passes("eagle3") < passes("eagle3 chain")
