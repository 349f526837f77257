"""The embedded models: they load, they are lossless, and speculative decoding is faster on them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from specchat.chat.events import Finished, TextDelta, Totals
from specchat.chat.request import Attachment, Request
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from specchat.weights.load_options import EMBEDDED
from tests.cover import matrix

CODE = '''def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("sizes must not be negative")
    return width * height
'''
REQUESTS = {
    "copy": Request(f"Copy the code exactly.\n\n```python\n{CODE}```"),
    "edit": Request("Rename `width` to `breadth`.", files=(Attachment("area.py", CODE),)),
    "chat": Request("What is a generator in Python?"),
}
SAMPLING = {
    "greedy": {},
    "T0.8": {"sampling.temperature": 0.8},
    "T1-p0.9": {"sampling.temperature": 1.0, "sampling.top_p": 0.9},
    "penalty": {"sampling.repetition_penalty": 1.3},
}
VARIANTS = [
    "lookup", "suffix", "draft", "eagle3", "mtp", "auto", "self",
]  # fmt: skip


@lru_cache
def engine() -> Engine:
    return load_engine(load_profile("chat"))


def with_sampling(sampling: str) -> Engine:
    profile = Profile().override(SAMPLING[sampling])
    return replace(engine(), models=replace(engine().models, profile=profile))


def answered(sampling: str, variant: str, request: str) -> tuple[str, Totals]:
    asked = REQUESTS[request]
    with with_sampling(sampling).create_session() as session:
        perfect = DraftModelDrafter(engine().models.target)
        session.drafters = {**session.drafters, "self": perfect}
        if variant == "self":
            session.drafters = {**session.drafters, "auto": perfect}
            variant = "auto"
        events = list(session.ask(Request(asked.text, asked.files, max_tokens=60, seed=3, variant=variant)))
    assert isinstance(events[-1], Finished), events[-1]
    return "".join(event.text for event in events if isinstance(event, TextDelta)), events[-1].totals


@lru_cache
def plainly(sampling: str, request: str) -> str:
    return answered(sampling, "plain", request)[0]


@pytest.mark.dear
@pytest.mark.parametrize(
    ("sampling", "variant", "request_"),
    matrix(list(SAMPLING), VARIANTS, list(REQUESTS), seldom=("T1-p0.9", "penalty"), rounds=1),
)
def test_no_drafter_changes_the_text(sampling, variant, request_):
    assert answered(sampling, variant, request_)[0] == plainly(sampling, request_)


def test_it_runs_in_float32_on_a_cpu():
    if torch.cuda.is_available():
        pytest.skip("the embedded models run in float32 on CPUs; here is a CUDA device")
    assert engine().models.target.pool.layout.dtype == torch.float32


def test_it_copies_and_prompt_lookup_is_fast():
    text, totals = answered("greedy", "lookup", "copy")

    assert CODE in text
    assert totals.tokens_per_step > 4


def test_the_trained_draft_beats_chance():
    _text, totals = answered("greedy", "draft", "chat")

    assert totals.acceptance.rate is not None
    assert totals.acceptance.rate > 0.2  # a random token would be accepted once in 8192


@pytest.mark.full
def test_answers_of_other_conversations_are_copied():
    profile = Profile().override({"models.draft": "", "models.heads": []})
    wild = Request("Tell me something.", temperature=1.5, seed=3, max_tokens=60, variant="suffix")
    answers = list[str]()
    private = profile.override({"speculation.recall": False})
    engine = load_engine(profile, past_texts=lambda: answers)
    engine.resources.past_texts.quiet_seconds = 0.0

    def answer_wildly(profile: Profile = profile) -> tuple[str, Totals]:
        with engine.create_session(profile=profile) as session:
            engine.resources.past_texts.wait()
            events = list(session.ask(wild))
        return "".join(event.text for event in events if isinstance(event, TextDelta)), events[-1].totals

    first, alone = answer_wildly()
    answers.append(first)
    again, recalled = answer_wildly()

    assert again == first
    assert recalled.tokens_per_step > 2 * alone.tokens_per_step
    assert recalled.accepted_by_drafter["past answers"] > recalled.accepted_by_drafter.get("suffix", 0)

    text, without_recall = answer_wildly(private)

    assert text == first
    assert "past answers" not in without_recall.accepted_by_drafter
    assert without_recall.tokens_per_step == alone.tokens_per_step


@pytest.mark.full
@pytest.mark.parametrize(
    "sampling", [pytest.param(each, marks=pytest.mark.full if each != "T0.8" else ()) for each in SAMPLING]
)
def test_the_target_as_its_own_draft_model_is_always_accepted(sampling):
    _text, totals = answered(sampling, "self", "chat")

    assert totals.tokens_per_step > 3.5


def test_the_embedded_files_stay_small():
    files = [file for file in EMBEDDED.rglob("*") if file.is_file()]

    assert sum(file.stat().st_size for file in files) <= 64 * 2**20
    assert (EMBEDDED / "README.md").is_file()
