"""The embedded models with smaller weights: from a profile to the text, whoever guesses."""

import pytest

from specchat.chat.events import Finished, TextDelta
from specchat.chat.request import Request
from specchat.forward.linear import Int8Linear, Nf4PackedLinear, OneDnnLinear, max_safe_int8, supports_nf4_packed
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile import Profile

WHO = ["suffix", "draft", "exit", "eagle", "eagle3", "mtp", "medusa", "auto"]
QUESTION = Request("Repeat: one two three, one two three.", max_tokens=16, seed=4)


def engine(**models: str | tuple[()]) -> Engine:
    keys = {f"models.{key}": value for key, value in models.items()}
    return load_engine(Profile().override({"speculation.exact": True, "sampling.temperature": 0.5, **keys}))


def said(loaded: Engine, who: str) -> str:
    with loaded.create_session() as session:
        events = list(session.ask(Request(QUESTION.text, variant=who, max_tokens=16, seed=4)))
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("weights", ["int8", "nf4"])
def test_who_guesses_changes_nothing(weights):
    loaded = engine(weights=weights)

    texts = {who: said(loaded, who) for who in ["plain", *WHO]}

    assert texts["plain"]
    assert texts == dict.fromkeys(texts, texts["plain"])


def test_a_profile_says_how_target_and_draft_are_held():
    loaded = engine(weights="int8", draft_weights="nf4", draft_device="cpu", embedding="cpu", heads=())
    target, draft = loaded.resources.target, loaded.draft_model

    if max_safe_int8():
        assert isinstance(target.weights.head, Int8Linear)
    if supports_nf4_packed():
        assert isinstance(draft.weights.head, Nf4PackedLinear)
    assert said(loaded, "draft") == said(loaded, "plain")


def test_measured_costs_are_kept_apart():
    kept = [engine(weights=weights, draft="").models.costs.path for weights in ("float", "int8", "nf4")]

    assert len(set(kept)) == 3


def test_weights_are_floats_unless_somebody_asks():
    assert isinstance(engine(draft="").resources.target.weights.head, OneDnnLinear)
