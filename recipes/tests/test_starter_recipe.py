"""The recipe of the starter's heads: answers in batches, and training on them."""

import random

import pytest
import torch

from recipes.answer_files import Answer, load_answers, save_answers
from recipes.batched_llama import BatchedLlama
from recipes.starter_answers import AnswerWriter, loop_start, next_tokens, write_answers
from recipes.starter_heads import acceptance_by_position, batch_loss, batches, load_batch, new_eagle3, read_answer_rows
from recipes.starter_questions import chat_questions, first_sentence
from recipes.starter_states import hidden_states
from specchat.drafters.heads.detect import inspect_head
from specchat.engine.model import FINAL_NORM
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load_options import LoadOptions
from specchat.weights.tensor_files import TensorFiles
from specchat_train.export_weights import export_eagle3
from specchat_train.frozen_target import FrozenTarget
from tests.tiny import speaking

PROMPTS = [[5, 9, 7, 30, 12], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51], [8] * 30]
STOPS = (0,)


@pytest.fixture(scope="module")
def model() -> BatchedLlama:
    return BatchedLlama(speaking(8))


@pytest.fixture(scope="module")
def answers(model):
    written = write_answers(model, PROMPTS, STOPS, max_tokens=12)
    return [
        Answer(prompt + answer, len(prompt), number == 1)
        for number, (prompt, answer) in enumerate(zip(PROMPTS, written, strict=True))
    ]


def test_an_answer_does_not_depend_on_the_other_rows_of_its_batch(model, answers):
    alone = [write_answers(model, [prompt], STOPS, max_tokens=12)[0] for prompt in PROMPTS]

    assert alone == [answer.answered for answer in answers]


def test_the_states_are_those_of_the_engine(model, answers):
    target = FrozenTarget(str(speaking(8)), LoadOptions("bfloat16", "cpu"))

    for answer, states in zip(answers, hidden_states(model, [each.tokens for each in answers]), strict=True):
        expected = target.hidden_states(answer.tokens, (*model.state_layers, FINAL_NORM))[:-1]
        assert torch.cosine_similarity(expected.float(), states.float(), dim=-1).min() > 0.999  # bfloat16


def test_an_answer_ends_with_any_of_the_stop_tokens(model, answers):
    first, second = answers[0].answered[:2]

    assert [first] == write_answers(model, PROMPTS[:1], (0, first), max_tokens=12)[0]
    assert [first, second] == write_answers(model, PROMPTS[:1], (0, second), max_tokens=12)[0][:2]


def test_an_answer_ends_where_it_begins_to_repeat_itself():
    loop = [1, 2, 3, *[7, 8, 9] * 4]

    assert loop_start(loop, length=6) == 6
    assert loop_start([1, 2, 3, 4, 5, 6, 7, 8], length=3) is None


def test_samples_are_of_the_nucleus_and_repeat_with_their_seed():
    logits = torch.tensor([[0.0, 5.0, 4.0, -3.0]]).expand(200, -1)
    first, again = (next_tokens(logits, 0.7, torch.Generator().manual_seed(1)) for _ in range(2))

    assert set(first.tolist()) == {1, 2}
    assert first.tolist() == again.tolist()
    assert next_tokens(logits, 0.0, torch.Generator())[0] == 1


def test_a_continued_run_stores_no_answer_twice(model, tmp_path):
    first = AnswerWriter(model, Tokenizer(speaking(8)), tmp_path)
    questions = [first.question([{"role": "user", "content": text}], False) for text in ("hello there", "good day")]
    first.write_group(tmp_path / "000000.safetensors", questions, 0.0, 0)
    stored = load_answers(tmp_path / "000000.safetensors")

    continued = AnswerWriter(model, Tokenizer(speaking(8)), tmp_path)
    continued.write_group(tmp_path / "000001.safetensors", questions, 0.0, 1)

    assert stored
    assert continued.tokens >= first.tokens == sum(len(answer.answered) for answer in stored)
    again = {tuple(answer.tokens) for answer in load_answers(tmp_path / "000001.safetensors")}
    assert not again & {tuple(answer.tokens) for answer in stored}


def test_a_head_learns_from_stored_answers_and_is_exported(model, answers, tmp_path):
    states = hidden_states(model, [answer.tokens for answer in answers])
    save_answers(tmp_path / "0.safetensors", answers, states)
    rows = read_answer_rows([tmp_path], held_out=False)
    files = TensorFiles.from_files(speaking(8), sorted(speaking(6).glob("*.safetensors")))
    eagle = new_eagle3(model.shape, rows, files, STOPS, vocabulary=64)

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
