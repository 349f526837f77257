"""Answers on the fake GPU: what fails on the first day on a real one, and how often the host waits for the device."""

from __future__ import annotations

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine import pass_clock
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.errors import CacheError
from specchat.forward.llama.llama import LlamaModel
from tests.each_row import each_row
from tests.engine.test_grammar import Counting
from tests.fake_gpu import CaptureError, FakeGpu
from tests.tiny import target, write
from tests.tiny_heads import drafter_of

TEXT = list(range(5, 45))
SAMPLERS = {
    "greedy": Sampler(),
    "T0.8": Sampler(0.8, seed=1),
    "top-p": Sampler(0.8, top_p=0.9, seed=1),
    "top-k": Sampler(0.8, top_k=20, seed=1),
    "min-p": Sampler(0.8, min_p=0.05, seed=1),
}


def gpu_model() -> Model:
    return target("dense-qwen3", device="cuda")


def loaded(model: Model) -> LlamaModel:
    """The model as `load_engine` leaves it."""
    assert isinstance(model, LlamaModel)
    model.capture_graphs(lambda *_: None)
    return model


def generation(model: Model, drafter: Drafter | None = None, text: list[int] = TEXT) -> Generation:
    started = Generation(model, () if drafter is None else (drafter,))
    started.replace_tokens(text)
    return started


def config(drafter: Drafter | None = None, sampler: Sampler | None = None, limit: int = 12) -> GenerationConfig:
    drafted = 0 if drafter is None else 8
    return GenerationConfig(drafter or Drafter(), sampler or Sampler(), drafted, limit)


def waits_per_step(gpu: FakeGpu, model: Model, drafter: Drafter | None, sampler: Sampler) -> float:
    """After the first steps, in which the drafter reads the prompt. Nothing is captured."""
    started, steps = generation(model, drafter), list[Step]()
    loaded(model)
    if isinstance(drafter, DraftModelDrafter):
        loaded(drafter.model)
    captures = gpu.captures
    with model.pool.acquire_slot(started.cache, started.rows_needed(100)):
        list(started.prefill())
        for step in started.decode(config(drafter, sampler, 60)):
            steps.append(step)
            if len(steps) == 6:
                gpu.reset()
            if len(steps) == 14:
                break
    assert gpu.captures == 0 < captures
    return gpu.waits.total() / (len(steps) - 6)


@pytest.mark.full
def test_a_conversation_follows_one_that_was_closed(gpu):
    model = gpu_model()
    first = generation(model)
    write(first, config())
    first.close()

    second = generation(model)

    assert len(write(second, config())) == 12
    assert gpu.replays > 12


@pytest.mark.full
def test_a_text_that_outgrows_its_slot_goes_on():
    model = gpu_model()
    growing = generation(model)
    write(growing, config())
    rows = growing.cache.require_slot().rows

    growing.replace_tokens(growing.tokens + TEXT * 40)

    assert len(write(growing, config())) == 12
    assert growing.cache.require_slot().rows > rows


@pytest.mark.full
def test_a_capture_that_fails_costs_the_graphs_and_not_the_answer(caplog, monkeypatch):
    expected = generation(gpu_model())
    write(expected, config())
    model = gpu_model()

    def refuse(*_arguments: object, **_options: object) -> object:
        raise CaptureError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    answered = generation(model)
    write(answered, config())

    assert answered.tokens == expected.tokens
    assert caplog.text.count("not permitted") == 1


@pytest.mark.full
def test_the_time_of_a_capture_is_not_that_of_a_pass(monkeypatch: pytest.MonkeyPatch):
    seconds = [0.0]
    capture = torch.cuda.graph

    def slow_capture(*arguments: object, **options: object) -> object:
        seconds[0] += 100.0
        return capture(*arguments, **options)

    def tick() -> float:
        seconds[0] += 0.001
        return seconds[0]

    monkeypatch.setattr(torch.cuda, "graph", slow_capture)
    monkeypatch.setattr(pass_clock, "perf_counter", tick)

    steps = write(generation(gpu_model()), config())

    assert seconds[0] > 100
    assert max(step.verify_seconds for step in steps) < 1
    assert max(step.draft_seconds for step in steps) < 1


@pytest.mark.full
@each_row("temperature", [0.0, 0.8])
def test_a_grammar_masks_logits_on_the_device(temperature):
    sampler, on_cpu = Sampler(temperature, seed=3), target("dense-qwen3")
    texts = list[list[int]]()
    for model in (on_cpu, gpu_model()):
        answered = generation(model)
        write(answered, GenerationConfig(Drafter(), sampler, 4, 8, grammar=Counting()))
        texts.append(answered.tokens)

    assert texts[0] == texts[1]


@pytest.mark.full
@pytest.mark.parametrize(
    "sampler", ["greedy", *(pytest.param(each, marks=pytest.mark.full) for each in ("T0.8", "top-p"))]
)
def test_no_turn_captures_a_graph(gpu, sampler):
    model, drafter = loaded(gpu_model()), DraftModelDrafter(loaded(gpu_model()))
    gpu.reset()
    for text in (TEXT, TEXT * 30):
        for each in (None, drafter):
            started = generation(model, each, text)
            write(started, config(each, SAMPLERS[sampler]))
            started.close()

    assert gpu.captures == 0
    assert gpu.replays > 48


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["greedy", pytest.param("T0.8", marks=pytest.mark.full)])
def test_a_step_is_one_replay_and_few_other_launches(gpu, sampler):
    model = loaded(gpu_model())
    started = generation(model)
    with model.pool.acquire_slot(started.cache, started.rows_needed(100)):
        list(started.prefill())
        gpu.reset()
        list(started.decode(config(None, SAMPLERS[sampler], 10)))

    assert gpu.replays == 10
    assert gpu.launches <= 10 * 6  # embedding, copies in, and copies of the logits


@pytest.mark.full
def test_an_idle_conversation_makes_room_for_another():
    model = gpu_model()
    first, second = generation(model, text=TEXT * 40), generation(model, text=TEXT[::-1] * 40)
    write(first, config())
    text = list(first.tokens)

    assert len(write(second, config())) == 12
    assert first.cache.slot is None
    write(first, config())

    assert first.tokens[: len(text)] == text
    assert second.cache.slot is None
    alone = generation(gpu_model(), text=TEXT * 40)
    write(alone, config())
    write(alone, config())
    assert first.tokens == alone.tokens


@pytest.mark.full
def test_a_slot_grows_beside_another():
    model, alone = gpu_model(), generation(gpu_model())
    growing, other = generation(model), generation(model)
    for each in (alone, growing, other):
        write(each, config())
    longer = growing.tokens + TEXT * 30
    for each in (alone, growing):
        each.replace_tokens(longer)
        write(each, config())

    assert growing.tokens == alone.tokens
    assert other.cache.slot is not None


def test_a_text_that_is_longer_than_the_arena_is_refused_with_the_numbers():
    model = gpu_model()

    with pytest.raises(CacheError, match=r"4\d+ rows takes .* MiB, more than is left of .* MiB; lower limits\.context"):
        write(generation(model, text=TEXT * 100), config())


@pytest.mark.parametrize(
    "sampler", [pytest.param(each, marks=() if each == "greedy" else pytest.mark.full) for each in SAMPLERS]
)
def test_plain_decoding_waits_once_a_step(gpu, sampler):
    assert waits_per_step(gpu, gpu_model(), None, SAMPLERS[sampler]) == 1


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["greedy", pytest.param("T0.8", marks=pytest.mark.full)])
def test_a_chain_of_a_draft_model_waits_twice_a_step(gpu, sampler):
    model = gpu_model()
    drafter = DraftModelDrafter(gpu_model())

    assert waits_per_step(gpu, model, drafter, SAMPLERS[sampler]) <= 2


@pytest.mark.full
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_row_is_sampled_the_same_alone_and_among_others(sampler):
    rules = SAMPLERS[sampler]
    model, texts = gpu_model(), list[list[int]]()
    for drafter in (None, drafter_of("eagle3", model), DraftModelDrafter(gpu_model())):
        answered = generation(model, drafter)
        write(answered, config(drafter, rules, 24))
        texts.append(answered.tokens[: len(TEXT) + 24])

    assert texts[0] == texts[1] == texts[2]


@pytest.mark.full
@pytest.mark.parametrize("shape", ["dense-qwen3_moe", "dense-gpt_oss"])
def test_a_mixture_of_experts_has_no_graph_and_the_text_of_a_cpu(gpu, shape):
    texts = list[list[int]]()
    for model in (loaded(target(shape, device="cuda")), target(shape)):
        answered = generation(model)
        write(answered, config())
        texts.append(answered.tokens)

    assert texts[0] == texts[1]
    assert (gpu.captures, gpu.replays) == (0, 0)
