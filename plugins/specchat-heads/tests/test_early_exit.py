"""Early exit: the first layers of the target draft on its own rows."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.chat.request import Request
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_heads.early_exit import EarlyExit
from tests.engine_answers import measure_answer
from tests.tiny import SPEAKING, network, speaking, target, write
from tests.tiny_heads import writing_of

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
SAMPLERS = {"greedy": Sampler(), "T1": Sampler(1.0, seed=4), "penalty": Sampler(0.8, repetition_penalty=1.3, seed=2)}


def made(layers: int, exact: bool = False) -> tuple[Generation, EarlyExit]:
    """A text that was read, and the exit on its rows."""
    model = target("dense-llama", exact=exact)
    assert isinstance(model, LlamaModel)
    drafter = EarlyExit(model, layers)
    writing = writing_of(model, drafter)
    writing.replace_tokens(TEXT)
    with model.pool.acquire_slot(writing.cache, len(TEXT) + SCRATCH_ROWS):
        list(writing.prefill())
    return writing, drafter


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_exit_after_the_last_layer_is_always_accepted(sampler):
    writing, drafter = made(layers=3)

    steps = write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=8, max_new_tokens=60))

    assert all(step.accepted == max(step.tree.depths) for step in steps)
    assert max(step.accepted for step in steps) > 1


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_committed_rows_are_unchanged(sampler):
    writing, drafter = made(layers=2)
    slot = writing.cache.require_slot()
    before = {shape: stack[:, :, : len(TEXT) - 1].clone() for shape, stack in slot.stacks.items()}

    prefix = SAMPLERS[sampler].make_seen_tokens(writing.tokens, 96, torch.device("cpu"))
    tree = drafter.propose(DraftContext(writing.tokens, SAMPLERS[sampler], 8, prefix, writing.cache))

    assert len(tree) > 1
    assert writing.cache.length == len(TEXT) - 1
    assert all(torch.equal(stack[:, :, : len(TEXT) - 1], before[shape]) for shape, stack in slot.stacks.items())


def test_rows_of_rejected_tokens_leave_no_trace():
    writing, drafter = made(layers=1)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=20))
    fresh = Generation(target("dense-llama"))
    fresh.replace_tokens(writing.tokens)
    with fresh.target.pool.acquire_slot(fresh.cache, 64 + SCRATCH_ROWS):
        list(fresh.prefill())
        expected = fresh.target.forward(DraftTree(writing.tokens[-1]), fresh.cache).logits

    assert torch.allclose(
        writing.target.forward(DraftTree(writing.tokens[-1]), writing.cache).logits, expected, atol=1e-4
    )


def test_the_budget_is_kept():
    writing, drafter = made(layers=2)
    for sampler in SAMPLERS.values():
        prefix = sampler.make_seen_tokens(writing.tokens, 96, torch.device("cpu"))
        for budget in range(10):
            assert len(drafter.propose(DraftContext(writing.tokens, sampler, budget, prefix))) <= budget + 1


def test_an_improbable_chain_ends():
    writing, drafter = made(layers=2)
    assert isinstance(writing.target, LlamaModel)
    asked = DraftContext(writing.tokens, Sampler(), 8, cache=writing.cache)

    writing.target.weights.norm.mul_(100)  # now every favourite is far ahead of the others
    assert len(drafter.propose(asked)) == drafter.chain_length + 1
    writing.target.weights.norm.mul_(0.0001)  # and now they are nearly alike
    assert len(drafter.propose(asked)) == 2


def test_without_the_rows_of_the_text_it_drafts_nothing():
    writing, drafter = made(layers=2)

    assert len(drafter.propose(DraftContext([*writing.tokens, 5, 6], Sampler(), 8, cache=writing.cache))) == 1
    assert len(drafter.propose(DraftContext(writing.tokens, Sampler(), 8))) == 1


def profile_of(folder: Path) -> Profile:
    return Profile().override({"models.target": str(folder), "models.draft": "", "models.heads": []})


def with_exit(source: Path, folder: Path, layer: int) -> Path:
    """A copy of a model whose config names this exit."""
    config = json.loads((shutil.copytree(source, folder) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"early_exit_layers": [layer]}))
    return folder


def test_in_an_engine_a_target_that_exits_early_writes_the_text_of_plain_decoding(tmp_path):
    engine = load_engine(profile_of(with_exit(speaking(3), tmp_path / "model", 1)))
    request = Request("why why why", max_tokens=24, seed=2, temperature=0.8)

    plain, drafted = (measure_answer(engine, replace(request, variant=variant)) for variant in ("plain", "exit"))

    assert plain.text == drafted.text
    assert sum(len(step.draft_tokens) for step in drafted.steps) > 0


def test_without_an_exit_in_its_config_or_our_own_passes_a_target_has_no_such_drafter(tmp_path):
    folder = shutil.copytree(speaking(2), tmp_path / "cohere")
    network("cohere", 2, vocabulary=SPEAKING).save_pretrained(folder)

    for without in (speaking(3), with_exit(folder, tmp_path / "by transformers", 1)):
        assert "exit" not in load_engine(profile_of(without)).create_session().drafters


def test_an_exit_that_the_target_does_not_have_is_a_line_for_the_user(tmp_path):
    folder = with_exit(speaking(3), tmp_path / "model", 3)

    session = load_engine(profile_of(folder)).create_session()

    assert "exit" not in session.drafters
    assert [f"{folder}: early_exit_layers has 3, and the model has 3 layers"] == list(session.take_faults())
