"""The table that compares a head with a pruned copy of the target."""

import pytest
import torch

from recipes.answer_files import Answer
from recipes.batched_llama import CPU, BatchedLlama
from recipes.pruned_draft import (
    PrunedLlama,
    at_least,
    best_chain,
    needed_acceptance,
    right_tokens,
    weights_share,
    write_pruned,
)
from recipes.starter_answers import write_answers
from specchat_hybrids.gguf_conversion import safetensors_folder
from tests.tiny import speaking

PROMPT = [5, 9, 7, 30, 12]


@pytest.fixture(scope="module")
def model() -> PrunedLlama:
    return PrunedLlama(speaking(8), CPU, torch.float32)


def test_runs_of_right_tokens_are_counted_from_every_position():
    assert at_least([torch.tensor([True, True, False]), torch.tensor([True])], 2) == [0.75, 0.5]


def test_with_all_layers_every_greedy_token_is_right(model):
    target = BatchedLlama(speaking(8), CPU, torch.float32)
    answer = Answer(PROMPT + write_answers(target, [PROMPT], (0,), max_tokens=12)[0], len(PROMPT), True)
    every, vocabulary = range(len(model.qkv)), torch.arange(len(model.lm_head))

    assert all(right_tokens(model, every, [answer], vocabulary)[0])
    assert not all(right_tokens(model, (0,), [answer], vocabulary)[0])


def test_a_pruned_folder_is_a_model_with_the_kept_layers(model, tmp_path):
    write_pruned(speaking(8), (1, 2), tmp_path)

    pruned = BatchedLlama(tmp_path, CPU, torch.float32)

    assert len(pruned.qkv) == 2
    assert torch.equal(pruned.qkv[0], model.qkv[1])
    assert safetensors_folder(tmp_path) == tmp_path


def test_a_draft_of_all_layers_and_tokens_costs_a_pass(model):
    assert weights_share(model, len(model.qkv), len(model.lm_head)) == 1
    assert weights_share(model, 1, 8) < 1 / len(model.qkv)


def test_a_chain_is_as_long_as_its_tokens_pay():
    rows = [0.0, 1.0, 1.0, 2.5, 4.0, 4.0]

    assert best_chain((0.5, 0.4), (0.1, 0.1), rows) == (1, 1.5, pytest.approx(1.25))
    assert needed_acceptance(1.24, (0.1, 0.1), rows) == "0.49"
    assert needed_acceptance(3.0, (0.0, 1.0), rows) == "more than 1"
