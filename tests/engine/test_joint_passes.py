"""Texts that share their passes: each is that of itself alone, and what one does never touches the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest

from specchat.engine.decode import Generation, Step
from specchat.engine.drafter import Drafter
from specchat.engine.joint_passes import MAX_TURNS, JointPasses
from specchat.engine.model import Model, ModelOutput
from specchat.forward.llama.llama import LlamaModel
from tests.cover import matrix
from tests.engine.test_at_once import LIMITS, TEXTS, config_of, prompt_of, texts_alone
from tests.engine.test_lossless import DRAFTERS, HEADS, SAMPLERS
from tests.tiny import target
from tests.tiny_heads import DRAFTERS as HEAD_DRAFTERS
from tests.tiny_heads import tiny_head

pytestmark = pytest.mark.usefixtures("native_library")

GREEDY = SAMPLERS["greedy"]


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """The number of texts in each pass for several."""
    counts, forward = list[int](), LlamaModel.forward_texts

    def counted(model: LlamaModel, trees) -> list[ModelOutput]:
        counts.append(len(trees))
        return forward(model, trees)

    monkeypatch.setattr(LlamaModel, "forward_texts", counted)
    return counts


class Texts:
    """Generations of one model that share their passes."""

    def __init__(self, model: Model, drafters: list[Drafter], slots: ExitStack, sampler=GREEDY) -> None:
        joint = JointPasses()
        self.generations = [Generation(model, (drafter,), joint) for drafter in drafters]
        self.steps = list[Iterator[Step | None]]()
        for number, generation in enumerate(self.generations):
            config = config_of(number, sampler, drafters[number])
            generation.replace_tokens(prompt_of(number))
            rows = generation.rows_needed(config.max_new_tokens)
            slots.enter_context(model.pool.acquire_slot(generation.cache, rows))
            for _length in generation.prefill():
                pass
            self.steps.append(generation.decode_jointly(config))

    def run(self, seed: int | None = None) -> None:
        """Until all have ended: in turns, or in the order that a seed draws."""
        running, dice = list(self.steps), Random(seed)
        while running:
            chosen = running[0] if seed is None else dice.choice(running)
            running.remove(chosen)
            if next(chosen, "ended") != "ended":
                running.append(chosen)

    @property
    def tokens(self) -> list[list[int]]:
        return [list(each.tokens) for each in self.generations]


@pytest.mark.dear
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    ("shape", "drafter", "sampler"),
    matrix(["dense-llama", "dense-gemma3", "gemma3", "dense-qwen3_5"], list(DRAFTERS), list(SAMPLERS), rounds=2),
)
def test_texts_with_joint_passes_are_those_of_each_alone(passes, shape, drafter, sampler, seed):
    model = target(shape)
    with ExitStack() as slots:
        texts = Texts(model, [DRAFTERS[drafter](shape) for _ in range(TEXTS)], slots, SAMPLERS[sampler])
        texts.run(seed)

    assert texts.tokens == texts_alone(target(shape), SAMPLERS[sampler])
    assert bool(passes) == getattr(model, "joins_texts", False)


@pytest.mark.dear
@pytest.mark.parametrize("head", HEADS)
def test_heads_draft_for_texts_with_joint_passes(passes, head):
    model = target("dense-llama")
    shared = tiny_head(head, model)
    model.set_hidden_state_layers(shared.hidden_state_layers)
    with ExitStack() as slots:
        texts = Texts(model, [HEAD_DRAFTERS[type(shared)](shared, model, None) for _ in range(TEXTS)], slots)
        texts.run()

    assert texts.tokens == texts_alone(target("dense-llama"), GREEDY)
    assert max(passes) > 2


def test_texts_in_turns_share_every_pass_and_a_text_alone_waits_for_none(passes):
    model = target("dense-llama")
    with ExitStack() as slots:
        texts = Texts(model, [Drafter() for _ in range(TEXTS)], slots)
        texts.run()
        longest = sorted(LIMITS)
        assert passes == [sum(limit > step for limit in LIMITS) for step in range(longest[-2])]

        alone = Texts(model, [Drafter()], slots)
        assert None not in list(alone.steps[0])


def test_a_text_that_is_never_advanced_keeps_the_others_for_a_few_turns_only(passes):
    with ExitStack() as slots:
        texts = Texts(target("dense-llama"), [Drafter(), Drafter()], slots)
        idle, other = texts.steps
        assert isinstance(next(idle), Step)  # alone so far
        for _step in range(2):
            assert [next(other) for _ in range(MAX_TURNS)] == [None] * MAX_TURNS
            assert isinstance(next(other), Step)

        assert not passes


@pytest.mark.parametrize("ends", ["before the pass", "after the pass"])
def test_a_text_that_is_closed_leaves_the_others_as_they_are(passes, ends):
    with ExitStack() as slots:
        texts = Texts(target("dense-llama"), [Drafter() for _ in range(3)], slots)
        first, second, third = texts.steps
        assert isinstance(next(first), Step)  # alone so far
        assert [next(second), next(third)] == [None, None]
        if ends == "after the pass":
            assert isinstance(next(first), Step)
            assert passes == [3]
        second.close()
        texts.steps.remove(second)
        texts.run()

    alone = texts_alone(target("dense-llama"), GREEDY)
    assert texts.tokens[0] == alone[0]
    assert texts.tokens[2] == alone[2]
    assert 3 not in passes[1:]


def test_a_joint_pass_that_fails_leaves_each_text_its_own(monkeypatch):
    def no_memory(_model: LlamaModel, _trees) -> list[ModelOutput]:
        raise MemoryError

    monkeypatch.setattr(LlamaModel, "forward_texts", no_memory)
    with ExitStack() as slots:
        texts = Texts(target("dense-llama"), [Drafter() for _ in range(TEXTS)], slots)
        texts.run()

    assert texts.tokens == texts_alone(target("dense-llama"), GREEDY)


def test_an_error_of_one_text_is_not_one_of_the_others(monkeypatch):
    class Broken(Drafter):
        def observe(self, _outcome):
            raise RuntimeError("broken")

    with ExitStack() as slots:
        texts = Texts(target("dense-llama"), [Drafter(), Drafter()], slots)
        assert isinstance(next(texts.steps[0]), Step)  # alone so far
        assert next(texts.steps[1]) is None
        texts.generations[0].drafters = (Broken(),)
        with pytest.raises(RuntimeError, match="broken"):
            next(texts.steps[0])
        del texts.steps[0]
        texts.run()

    assert texts.tokens[1] == texts_alone(target("dense-llama"), GREEDY)[1]
