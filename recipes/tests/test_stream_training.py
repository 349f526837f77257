"""Training on a stream of answers: waves, batches, loss, noise, parts of files, and a whole run on a tiny network."""

import json
from itertools import count

import numpy as np
import pytest
import torch

from recipes.answer_store import AnswerStore, StreamAnswer, load_answer_batch
from recipes.answer_stream import TurnTokens
from recipes.answer_waves import WaveSettings, choose_tokens, loop_starts, write_wave
from recipes.batched_llama import BatchedLlama
from recipes.file_parts import join_parts, split_folder
from recipes.sharpened_loss import TargetRows, sharpened_cross_entropy
from recipes.starter_answers import loop_start
from recipes.stream_evaluation import conditional_noise
from recipes.stream_training import Clock, StreamTraining, parse_arguments
from specchat.drafters.heads.detect import inspect_head
from specchat.text.tokenizer import Tokenizer
from tests.tiny import speaking

CPU = torch.device("cpu")


def test_loops_of_all_rows_are_found_at_once():
    rows = [[9, 9, *[1, 2, 3] * 4], [5, 6, 7, 8, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14], [4, 3, 9, *[7] * 11], [1, 2] * 7]
    starts = loop_starts(torch.tensor(rows), length=5).tolist()

    assert [loop_start(row, length=5) for row in rows] == [start if start < 14 else None for start in starts]
    assert starts[1] == 14


def test_a_wave_writes_the_best_tokens_and_drops_rows_that_ended():
    model, stops = BatchedLlama(speaking(8)), tuple(range(0, 200, 9))
    prompts = [np.array([5 + index, 9, 7, *range(30, 30 + index % 9)], dtype=np.int32) for index in range(64)]
    answers = write_wave(model, prompts, torch.zeros(64), WaveSettings(stops, 40), torch.Generator())

    for prompt, answer in zip(prompts, answers, strict=True):
        text = torch.tensor([*prompt, *answer])[None]
        logits = model.logits(model.read_texts(text)[0, len(prompt) - 1 : -1]).float()
        best = logits.amax(-1) - logits.gather(1, text[0, len(prompt) :, None]).squeeze(1)
        assert best.max() < 0.4  # bfloat16
        assert not set(answer[:-1].tolist()) & set(stops)
    assert sum(answer[-1] in stops for answer in answers) > 40  # others loop, and the last ones are cut off
    assert len({len(answer) for answer in answers}) > 5


def test_each_row_has_its_temperature():
    logits = torch.tensor([[0.0, 5.0, 4.9, -9.0]]).expand(400, -1)
    temperatures = torch.tensor([0.0, 1.0]).repeat_interleave(200)
    chosen = choose_tokens(logits, temperatures, 0.9, torch.Generator().manual_seed(0))

    assert chosen[:200].tolist() == [1] * 200
    assert set(chosen[200:].tolist()) == {1, 2}


def test_batches_have_all_answers_once_and_positions_predict_two_tokens_ahead():
    store = AnswerStore()
    numbers = store.add([StreamAnswer(np.arange(length, dtype=np.int32), 4, 0.0) for length in (9, 30, 12, 8, 21)])
    batches = store.batches(numbers, 40, np.random.default_rng(0))
    batch = load_answer_batch(store.answers[:2], 2, CPU)

    assert sorted(len(answer.tokens) for each in batches for answer in each) == [8, 9, 12, 21, 30]
    assert all(len(each) * max(len(answer.tokens) for answer in each) <= 40 for each in batches)
    assert batch.is_answer[0].nonzero().squeeze(1).tolist() == [3, 4, 5, 6]
    assert batch.is_prompt[0].nonzero().squeeze(1).tolist() == [2]


def test_the_sharpened_loss_has_the_gradients_of_its_parts():
    torch.manual_seed(0)
    hidden, weight = torch.randn(300, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    states, lm_head = torch.randn(300, 8), torch.randn(20, 8)
    expected = torch.zeros(())
    for temperature, share in ((1.0, 1.0), (0.4, 0.5 * 0.4)):
        target = (states @ lm_head.T / temperature).softmax(-1)
        expected = expected - share * (target * (hidden @ weight.T / temperature).log_softmax(-1)).sum(-1).mean()
    loss = sharpened_cross_entropy(hidden, weight, TargetRows(states, lm_head), 0.4, 0.5)

    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, (hidden, weight)), torch.autograd.grad(expected, (hidden, weight))
    )


def test_conditional_noise_chooses_the_token_and_is_gumbel_noise_in_all():
    log_shares = torch.randn(1, 6).mul(2).log_softmax(-1).expand(40000, -1)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.multinomial(log_shares.exp(), 1, generator=generator).squeeze(1)
    noise = conditional_noise(log_shares, chosen, generator)

    assert torch.equal((log_shares + noise).argmax(-1), chosen)
    assert noise.mean(0) == pytest.approx(np.full(6, 0.5772), abs=0.03)
    assert noise.var(0) == pytest.approx(np.full(6, 1.6449), abs=0.1)


def test_parts_of_files_are_the_folder_again(tmp_path):
    (tmp_path / "heads" / "a").mkdir(parents=True)
    (tmp_path / "heads" / "a" / "model.safetensors").write_bytes(bytes(range(256)) * 100)
    for _ in range(2):
        assert split_folder(tmp_path / "heads", tmp_path / "parts", 10_000) > 2
    join_parts(tmp_path / "parts", tmp_path / "again")

    assert (tmp_path / "again/a/model.safetensors").read_bytes() == bytes(range(256)) * 100


def test_the_schedule_follows_the_clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("recipes.stream_training.monotonic", lambda: now[0])
    clock = Clock(seconds=540.0, reserved=40.0, started=90.0, trains_since=50.0)

    assert (clock.progress, clock.is_over()) == (pytest.approx(-40 / 450), False)
    now[0] = 590.0
    assert (clock.progress, clock.is_over()) == (1.0, True)


def test_a_whole_run_ends_in_time_with_heads_that_can_be_read(tmp_path, monkeypatch):
    ticks = count()  # a clock that does not depend on the machine
    monkeypatch.setattr("recipes.stream_training.monotonic", lambda: 0.05 * next(ticks))
    rows = [{"text": f"question {index} of many", "is_held_out": index % 5 == 0} for index in range(40)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sizes = {"heads": "64x32", "minutes": 0.15, "device": "cpu", "round-questions": 6, "asked": 12, "cache-tokens": 4000,
             "max-answer": 24, "max-question": 8, "evaluated": 4, "evaluated-answer": 16, "batch-tokens": 600,
             "evaluation-tokens": 600, "vocabulary-tokens": 60}  # fmt: skip
    paths = {"target": speaking(8), "questions": tmp_path / "questions.jsonl", "out": tmp_path / "out"}
    options = [part for name, value in (paths | sizes).items() for part in (f"--{name}", str(value))]

    StreamTraining(parse_arguments(options)).run()

    log = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    assert [line for line in log if line["kind"] == "failure"] == []
    assert log[-1]["kind"] == "end" and log[-1]["trained_answer_tokens"] > 0
    assert {line["temperature"] for line in log if line["kind"] == "evaluation"} == {0.0, 0.2, 0.7}
    join_parts(tmp_path / "out/parts", tmp_path / "joined")
    assert inspect_head(tmp_path / "joined/64x32").kind == "eagle3"


def test_the_turns_of_a_template_are_found():
    tokenizer = Tokenizer(speaking(8))
    turns = TurnTokens.of(tokenizer)
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    a, b, c = (tokenizer.encode(text) for text in "abc")
    stop = min(tokenizer.stop_token_ids)
    parts = [*turns.opening, *a, *turns.closing, *b, stop, *turns.reopening, *c, *turns.closing]

    assert tokenizer.encode(tokenizer.chat.render(messages, add_generation_prompt=True), parse_special=True) == parts
