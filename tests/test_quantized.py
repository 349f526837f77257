"""The embedded models with quantized weights: no drafter changes the text."""

from functools import lru_cache

import pytest

from specchat.chat.events import Finished, TextDelta
from specchat.chat.request import Request
from specchat.forward.linear.linear import NativeLinear, OneDnnLinear
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.linear.quant_linear import Nf4PackedLinear, supports_nf4_packed
from specchat.forward.native.native_ops import native_kernels
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from tests.cover import matrix

VARIANTS = ["suffix", "draft", "eagle3", "mtp", "auto"]
QUESTION = Request("Repeat: one two three, one two three.", max_tokens=16, seed=4)


@lru_cache
def engine(**models: str | tuple[()]) -> Engine:
    keys = {f"models.{key}": value for key, value in models.items()}
    return load_engine(Profile().override({"speculation.exact": True, "sampling.temperature": 0.5, **keys}))


def answer(loaded: Engine, variant: str) -> str:
    with loaded.create_session() as session:
        events = list(session.ask(Request(QUESTION.text, variant=variant, max_tokens=16, seed=4)))
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@lru_cache
def plainly(weights: str) -> str:
    return answer(engine(weights=weights), "plain")


@pytest.mark.dear
@pytest.mark.parametrize(("weights", "variant"), matrix(["int8", "nf4"], VARIANTS, rounds=1))
def test_no_drafter_changes_the_text(weights, variant):
    assert plainly(weights)
    assert answer(engine(weights=weights), variant) == plainly(weights)


@pytest.mark.full
def test_a_profile_sets_the_weight_formats_of_target_and_draft():
    loaded = engine(weights="int8", draft_weights="nf4", draft_device="cpu", embedding_device="cpu", heads=())
    target, draft = loaded.resources.target, loaded.resources.draft_model

    if native_kernels().library is not None:
        assert isinstance(target.weights.lm_head, PackedLinear)
    if supports_nf4_packed():
        assert isinstance(draft.weights.lm_head, Nf4PackedLinear)
    assert answer(loaded, "draft") == answer(loaded, "plain")


@pytest.mark.full
def test_costs_are_stored_by_weight_format():
    files = [engine(weights=weights).models.learned_file for weights in ("float", "int8", "nf4")]
    paths = [file.path for file in files if file is not None]

    assert len(set(paths)) == 3


def test_weights_are_floats_by_default():
    assert isinstance(engine(weights="float").resources.target.weights.lm_head, NativeLinear | OneDnnLinear)
