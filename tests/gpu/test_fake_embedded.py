"""The embedded models on the fake GPU: every variant with every weight format, through the whole engine."""

from __future__ import annotations

import gc

import pytest
import torch

from specchat.chat.events import Event, Failed, Finished, LoadingProgress, TextDelta
from specchat.chat.request import Request
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from tests.fake_gpu import FakeGpu, fake_gpu

pytestmark = pytest.mark.full

VARIANTS = ["lookup", "suffix", "draft", "eagle3", "mtp", "auto"]
WEIGHTS = ["float", "int8", "fp8", "nf4", "nf4-double"]


@pytest.fixture(scope="module")
def gpu():
    with fake_gpu() as fake:
        yield fake


@pytest.fixture(scope="module", params=WEIGHTS)
def engine(request, gpu: FakeGpu) -> Engine:
    del gpu
    keys = {"models.device": "cuda", "models.weights": request.param, "models.dtype": "bfloat16"}
    return load_engine(Profile().override({**keys, "speculation.exact": True}))


def answer(engine: Engine, variant: str, temperature: float) -> str:
    question = Request("Repeat: one two three, one two three.", variant=variant, max_tokens=12, seed=4)
    with engine.create_session(
        profile=engine.models.profile.override({"sampling.temperature": temperature})
    ) as session:
        events = list(session.ask(question))
    assert isinstance(events[-1], Finished), [event for event in events if isinstance(event, Failed)]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.fixture(scope="module")
def plain_texts(engine: Engine) -> dict[float, str]:
    return {temperature: answer(engine, "plain", temperature) for temperature in (0.0, 0.8)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_drafter_changes_the_text_or_captures_a_graph(engine, gpu, plain_texts, variant):
    captures = gpu.captures

    assert {temperature: answer(engine, variant, temperature) for temperature in plain_texts} == plain_texts
    assert gpu.captures == captures


def test_the_engine_asks_for_no_kernel_that_plans_for_each_length(engine):
    assert engine.models.target.pool.layout.device.type == "cuda"
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_all_graphs_are_captured_while_the_models_load_and_none_during_a_turn(gpu):
    events = list[Event]()
    keys = {"models.device": "cuda", "models.heads": (), "limits.context": 1100}

    loaded = load_engine(Profile().override(keys), events.append)

    reported = [each for each in events if isinstance(each, LoadingProgress) and "graphs" in each.text]
    assert (reported[0].text, reported[0].done) == ("capturing CUDA graphs…", 0)
    assert reported[-1].done == reported[-1].total > 0
    gpu.reset()
    assert all(answer(loaded, variant, 0.8) for variant in ("plain", "draft", "suffix"))
    assert gpu.captures == 0
    assert gpu.replays > 20


def test_an_answer_holds_what_it_held_before(gpu):
    loaded = load_engine(Profile().override({"models.device": "cuda", "models.heads": (), "models.draft": ""}))
    answer(loaded, "plain", 0.0)
    gc.collect()
    held = gpu.held_bytes

    for _ in range(3):
        answer(loaded, "plain", 0.0)
        gc.collect()

    assert gpu.held_bytes == held
