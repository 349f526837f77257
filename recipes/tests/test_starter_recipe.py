"""The recipe of the starter's heads: answers in batches, and training on them."""

import random

import pytest
import torch

from recipes.starter_answers import BatchedLlama, save_group, write_answers
from recipes.starter_heads import acceptance_by_position, batch_loss, batches, load_batch, new_eagle3, read_answer_rows
from recipes.starter_questions import chat_questions, first_sentence
from specchat.engine.model import FINAL_NORM
from specchat.heads.detect import inspect_head
from specchat.weights.load_options import LoadOptions
from specchat.weights.tensor_files import TensorFiles
from specchat_train.export_weights import export_eagle3
from specchat_train.frozen_target import FrozenTarget
from tests.tiny import speaking

PROMPTS = [[5, 9, 7, 30, 12], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51], [8] * 30]
STOP = 0


@pytest.fixture(scope="module")
def model() -> BatchedLlama:
    return BatchedLlama(speaking(8))


@pytest.fixture(scope="module")
def answers(model):
    return write_answers(model, PROMPTS, STOP, max_tokens=12)


def test_an_answer_does_not_depend_on_the_other_rows_of_its_batch(model, answers):
    alone = [write_answers(model, [prompt], STOP, max_tokens=12)[0] for prompt in PROMPTS]

    assert [answer.tokens for answer in alone] == [answer.tokens for answer in answers]


def test_the_states_are_those_of_the_engine(model, answers):
    target = FrozenTarget(str(speaking(8)), LoadOptions("bfloat16", "cpu"))

    for answer in answers:
        expected = target.hidden_states(answer.tokens, (*model.state_layers, FINAL_NORM))[:-1]
        assert torch.cosine_similarity(expected.float(), answer.states.float(), dim=-1).min() > 0.999  # bfloat16


def test_a_head_learns_from_stored_answers_and_is_exported(model, answers, tmp_path):
    save_group(tmp_path / "0.safetensors", answers, [False, True, False])
    rows = read_answer_rows([tmp_path], held_out=False)
    files = TensorFiles.from_files(speaking(8), sorted(speaking(6).glob("*.safetensors")))
    eagle = new_eagle3(model.shape, rows, files, STOP, vocabulary=64)

    with torch.autocast("cpu", torch.bfloat16):
        loss = batch_loss(eagle, load_batch(next(batches(rows, random.Random(0))), 2), model.embedding, 2)
    loss.backward()
    export_eagle3(eagle, model.shape, tmp_path / "head")

    assert [len(row.tokens) for row in rows] == [len(answers[0].tokens), len(answers[2].tokens)]
    assert eagle.fc.weight.grad is not None and torch.isfinite(loss)
    assert len(acceptance_by_position(eagle, rows, model.embedding)) == 4
    assert inspect_head(tmp_path / "head").kind == "eagle3"


def test_questions_have_a_source_that_decides_whether_they_are_held_out():
    questions = list(chat_questions(random.Random(0)))
    held_out = {question.source for question in questions if question.is_held_out}

    assert 0 < len(held_out) < 0.1 * len({question.source for question in questions})
    assert first_sentence("Return the sum of a list. And more.") == "Return the sum of a list."
