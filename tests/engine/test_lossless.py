"""Law 1: a drafter can make decoding faster, never different."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch

from specchat.chooser.chooser import Chooser
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from tests.cover import matrix
from tests.tiny import SHAPES, Chaos, FirstOf, answer, network, small, target, write
from tests.tiny_heads import drafter_of, writing_of

PROMPT = [7, 3, 9, 12, 7, 3, 9, 12, 40, 41, 42] * 3
SECOND = [9, 9, 4, 40, 41]
STOPS = frozenset(range(3, 90, 6))  # so many that most answers end inside a block

SAMPLERS = {
    "greedy": Sampler(),
    "T1": Sampler(1.0, seed=1),
    "T0.7-p0.9": Sampler(0.7, top_p=0.9, seed=2),
    "k20": Sampler(1.0, top_k=20, seed=3),
    "min-p": Sampler(1.0, min_p=0.05, seed=4),
    "penalty": Sampler(repetition_penalty=1.3),
    "T0.8-penalty": Sampler(0.8, repetition_penalty=1.3, seed=5),
    "frequency": Sampler(frequency_penalty=0.8, presence_penalty=0.4),
    "biases": Sampler(biases=((40, 4.0), (7, -100.0), (12, 2.5))),
    "T0.8-biases": Sampler(0.8, top_k=20, presence_penalty=0.4, biases=((41, 3.0), (9, -3.0)), seed=7),
    "T0.8-frequency": Sampler(0.8, top_p=0.95, repetition_penalty=1.1, frequency_penalty=1.2, seed=6),
}


def chooser(shape: str) -> Chooser:
    """A chooser with zero costs, which therefore uses chaos, too."""
    drafters = {"lookup": PromptLookup(), "draft": DraftModelDrafter(small(shape)), "chaos": Chaos(5)}
    return Chooser(drafters, Costs({1024: Curve({1: 1.0, 16: 1.0})}))


DRAFTERS: dict[str, Callable[[str], Drafter]] = {
    "chaos": lambda _shape: Chaos(3),
    "lookup": lambda _shape: PromptLookup(),
    "draft": lambda shape: DraftModelDrafter(small(shape)),
    "self": lambda shape: DraftModelDrafter(target(shape)),
    "lookup-else-draft": lambda shape: FirstOf(PromptLookup(), DraftModelDrafter(small(shape))),
    "auto": chooser,
    "lookup-else-chaos": lambda _shape: FirstOf(PromptLookup(), Chaos(4)),
    "suffix": lambda _shape: SuffixDecoding(),
}
TARGETS = [
    *SHAPES,
    "dense-llama",
    "dense-qwen2",
    "dense-qwen3",
    "dense-mistral",
    "dense-qwen3_moe",
    "dense-qwen3_5",
    "dense-gpt_oss",
    "graphs-mistral",
]
HEADS = ["eagle3", "mtp"]
PLANS = {
    "open": frozenset[int](),
    "stop": STOPS,
}


def two_turns(model: Model, drafter: Drafter, sampler: Sampler, stop: frozenset[int]) -> list[list[int]]:
    """An answer, a truncation inside it, more text, and another answer."""
    writing, texts = writing_of(model, drafter), list[list[int]]()
    writing.replace_tokens(PROMPT)
    write(writing, GenerationConfig(drafter, sampler, max_draft_tokens=8, max_new_tokens=30, stop_token_ids=stop))
    texts.append(list(writing.tokens))
    kept = len(PROMPT) + max((len(writing.tokens) - len(PROMPT)) // 2, 1)
    writing.replace_tokens(writing.tokens[:kept] + SECOND)
    write(writing, GenerationConfig(drafter, sampler, max_draft_tokens=8, max_new_tokens=20, stop_token_ids=stop))
    texts.append(list(writing.tokens))
    assert writing.cache.length == len(writing.tokens) - 1
    return texts


@lru_cache
def plainly(shape: str, sampler: str, stop: str) -> list[list[int]]:
    return two_turns(target(shape), Drafter(), SAMPLERS[sampler], PLANS[stop])


@pytest.mark.parametrize(
    ("shape", "drafter", "sampler", "stop"),
    matrix(
        TARGETS, list(DRAFTERS), list(SAMPLERS), list(PLANS), seldom=("qwen2", "qwen3", "mistral"), rounds=3, step=5
    ),
)
def test_no_drafter_can_change_the_text(shape, drafter, sampler, stop):
    texts = two_turns(target(shape), DRAFTERS[drafter](shape), SAMPLERS[sampler], PLANS[stop])

    assert texts == plainly(shape, sampler, stop)


@pytest.mark.dear
@pytest.mark.parametrize(
    ("shape", "head", "sampler", "stop"),
    matrix(["gemma3", "dense-llama", "graphs-mistral"], HEADS, list(SAMPLERS), list(PLANS), rounds=3),
)
def test_no_head_can_change_the_text(shape, head, sampler, stop):
    model = target(shape)
    texts = two_turns(model, drafter_of(head, model), SAMPLERS[sampler], PLANS[stop])

    assert texts == plainly(shape, sampler, stop)


@pytest.mark.parametrize("head", HEADS)
def test_no_head_can_change_the_text_in_exact_mode(head):
    def turns(made: Callable[[Model], Drafter]) -> list[list[int]]:
        model = target("dense-qwen3", exact=True)
        return two_turns(model, made(model), SAMPLERS["T1"], STOPS)

    assert turns(lambda model: drafter_of(head, model)) == turns(lambda _model: Drafter())


@pytest.mark.dear
@pytest.mark.parametrize(
    ("shape", "drafter", "sampler"),
    matrix(
        ["llama", "dense-qwen3"],
        list(DRAFTERS),
        list(SAMPLERS),
        seldom=("T0.7-p0.9", "k20", "min-p", "penalty"),
        rounds=2,
    ),
)
def test_exact_mode_keeps_the_text_in_bfloat16_too(shape, drafter, sampler):
    def turns(made: Drafter) -> list[list[int]]:
        return two_turns(target(shape, exact=True, dtype=torch.bfloat16), made, SAMPLERS[sampler], STOPS)

    assert turns(DRAFTERS[drafter](shape)) == turns(Drafter())


@pytest.mark.parametrize(("shape", "penalty"), matrix(TARGETS, [1.0, 1.3], rounds=1))
def test_greedy_text_is_that_of_transformers(shape, penalty):
    prompt = torch.tensor([PROMPT])
    with torch.inference_mode():
        theirs = network(shape.split("-")[-1]).generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=40,
            repetition_penalty=penalty, eos_token_id=None,
        )  # fmt: skip

    ours = answer(target(shape), PromptLookup(), PROMPT, Sampler(repetition_penalty=penalty), limit=40)

    assert ours == theirs[0, len(PROMPT) :].tolist()


@pytest.mark.dear
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_perfect_drafter_is_always_accepted(sampler):
    model, drafter = target("qwen3"), DraftModelDrafter(target("qwen3"), chain_length=4)
    writing = Generation(model, (drafter,))
    writing.replace_tokens(PROMPT)

    steps = write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=8, max_new_tokens=80))

    assert all(step.accepted == max(step.tree.depths) for step in steps)
    assert max(step.accepted for step in steps) == 4


def test_a_truncated_text_continues_like_a_new_one():
    drafter = FirstOf(PromptLookup(), DraftModelDrafter(small()))
    writing = Generation(target(), (drafter,))
    writing.replace_tokens(PROMPT)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=30))

    writing.truncate(len(PROMPT) + 7)
    kept = list(writing.tokens)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=30))

    assert writing.tokens[len(kept) :] == answer(target(), Drafter(), kept, Sampler(), limit=30)


def test_a_limit_inside_an_accepted_path_is_exact():
    drafter = DraftModelDrafter(target(), chain_length=4)
    for limit in range(1, 12):
        writing = Generation(target(), (drafter,))
        writing.replace_tokens(PROMPT)
        write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=limit))

        assert len(writing.tokens) == len(PROMPT) + limit
        assert writing.cache.length == len(writing.tokens) - 1


def test_an_exact_target_is_never_given_a_tree():
    drafter = Chaos(1)
    writing = Generation(target(exact=True), (drafter,))
    writing.replace_tokens(PROMPT)

    steps = write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=30))

    assert all(step.tree.is_chain for step in steps)
    assert any(step.drafted for step in steps)
