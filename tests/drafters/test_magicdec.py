"""MagicDec: the target drafts from the first and the last tokens of its own KV cache."""

from __future__ import annotations

import pytest
import torch

from specchat.drafters.magicdec import SINK_TOKENS, MagicDec
from specchat.drafters.registry import DraftingResources, build_drafter
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.forward.llama.llama import LlamaModel
from tests.tiny import target, write
from tests.tiny_heads import read, writing_of

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 8
SAMPLERS = {"greedy": Sampler(), "T1": Sampler(1.0, seed=4), "penalty": Sampler(0.8, repetition_penalty=1.3, seed=2)}


def made(window_tokens: int, shape: str = "dense-llama", *, has_int8_kv: bool = False) -> tuple[Generation, MagicDec]:
    """A text that was read, and the drafter on its rows."""
    model = target(shape, has_int8_kv=has_int8_kv)
    assert isinstance(model, LlamaModel)
    drafter = MagicDec(model, window_tokens)
    writing = writing_of(model, drafter)
    read(writing, TEXT)
    return writing, drafter


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("has_int8_kv", [False, True])
def test_a_target_that_sees_no_more_than_the_window_accepts_everything(sampler, has_int8_kv):
    writing, drafter = made(window_tokens=24, shape="dense-mistral", has_int8_kv=has_int8_kv)  # its own windows are 24

    steps = write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=8, max_new_tokens=60))

    assert all(step.accepted == max(step.tree.depths) for step in steps)
    assert max(step.accepted for step in steps) > 1


def test_a_target_that_sees_more_accepts_less():
    writing, drafter = made(window_tokens=4)

    steps = write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=60))

    assert any(step.accepted < max(step.tree.depths) for step in steps)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_committed_rows_of_the_target_are_unchanged(sampler):
    writing, drafter = made(window_tokens=8)
    slot, committed = writing.cache.require_slot(), len(TEXT) - 1
    before = {shape: stack[:, :, :committed].clone() for shape, stack in slot.stacks.items()}

    seen = SAMPLERS[sampler].make_seen_tokens(writing.tokens, 96, torch.device("cpu"))
    tree = drafter.propose(DraftContext(writing.tokens, SAMPLERS[sampler], 8, seen, writing.cache))

    assert len(tree) > 1
    assert writing.cache.length == committed
    assert all(torch.equal(stack[:, :, :committed], before[shape]) for shape, stack in slot.stacks.items())


def test_a_text_that_fits_into_sink_and_window_is_not_drafted():
    writing, drafter = made(window_tokens=len(TEXT) - SINK_TOKENS)

    assert len(drafter.propose(DraftContext(writing.tokens, Sampler(), 8, cache=writing.cache))) == 1


@pytest.mark.parametrize(("model", "is_built"), [("llama", False), ("dense-llama", True), ("graphs-llama", False)])
def test_it_is_built_for_eager_passes_of_our_own(model, is_built):
    drafter = build_drafter("magicdec", DraftingResources(target(model)))

    assert isinstance(drafter, MagicDec) == is_built
