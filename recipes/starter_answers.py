"""Writes a model's answers to many questions at once, for the training of heads and drafts.

    python -m recipes.starter_answers --target FOLDER --questions FILE --out FOLDER

A batch writes several times as many tokens a second on one core as the engine, which writes one after another. Half of
the groups are answered greedily, a quarter each at T 0.2 and 0.7 with top-p 0.9; a third of the questions has a second
turn, which the model asks itself or a template does. An answer ends where it begins to repeat itself, as a loop would
teach loops, and is dropped when one that begins alike is known. Each group is one file; a run continues with the
missing ones, and waits while a file `PAUSE` is in the folder.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from recipes.answer_files import Answer, load_answers, save_answers
from recipes.batched_llama import BatchedLlama, causal_mask
from recipes.question_words import FOLLOW_UPS
from specchat.devices import has_cpu_bfloat16
from specchat.text.tokenizer import Tokenizer

GROUP_SIZE, PREFILL_ROWS, SORTED_GROUPS = 64, 16, 8
MAX_PROMPT, MAX_CONVERSATION, MAX_ANSWER, MIN_ANSWER = 320, 480, 400, 8  # tokens
FINISHED_SHARE = 0.1  # of a batch, before its finished rows are dropped
TEMPERATURES, TOP_P = (0.0, 0.2, 0.0, 0.7), 0.9  # of the groups in turn
NUCLEUS_TOKENS = (
    256  # at T 0.7 and below the nucleus lies in these; sorting the whole vocabulary costs more than a pass
)
REPEATED_TOKENS, CHECK_STEPS = 24, 16  # an answer that repeats so many tokens has begun to loop
ALIKE_TOKENS = 48  # answers that begin with the same ones are duplicates
FOLLOW_UP_SHARE, ASKED_BY_MODEL, MAX_ASKED, ASKING_TEMPERATURE = 0.33, 0.5, 48, 0.7
USER_TURN = "<|im_start|>user\n"
PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Question:
    """The messages so far and their tokens."""

    messages: tuple[dict[str, str], ...]
    prompt: list[int]
    is_held_out: bool


@dataclass
class Batch:
    """Rows that are written together: padded on the left, the stop token where nothing is written yet."""

    tokens: Tensor
    padding: Tensor
    prompt_length: int
    stop_ids: Sequence[int]
    looped_at: dict[int, int] = field(default_factory=dict[int, int])

    def answer(self, row: int) -> list[int]:
        """What a row has written, with its stop token unless it loops or is cut off."""
        written = self.tokens[row, self.prompt_length :].tolist()
        if row in self.looped_at:
            return written[: self.looped_at[row]]
        return written[: self.length(written)]

    def length(self, written: Sequence[int]) -> int:
        """Of an answer with its stop token, or of all where none is written yet."""
        return next((index + 1 for index, token in enumerate(written) if token in self.stop_ids), len(written))


def loop_start(tokens: Sequence[int], length: int = REPEATED_TOKENS) -> int | None:
    """Where an answer begins to repeat itself, if its last tokens were written before."""
    tail = list(tokens[-length:])
    for first in range(len(tokens) - length - 1, -1, -1):
        if tokens[first : first + length] == tail:
            start, period = len(tokens) - length, len(tokens) - length - first
            while start > period and tokens[start - 1] == tokens[start - 1 - period]:
                start -= 1
            return start
    return None


def next_tokens(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """The most probable tokens, or samples of the nucleus. [B, V] -> [B]"""
    if temperature == 0.0:
        return logits.argmax(-1)
    best, ids = (logits.float() / temperature).topk(min(NUCLEUS_TOKENS, logits.shape[-1]))
    total = (logits.float() / temperature).logsumexp(-1, keepdim=True)
    shares = (best - total).exp()
    shares = shares.masked_fill(shares.cumsum(-1) - shares > TOP_P, 0.0)
    return ids.gather(1, torch.multinomial(shares, 1, generator=generator)).squeeze(1)


@torch.no_grad()
def write_answers(
    model: BatchedLlama,
    prompts: Sequence[list[int]],
    stop_ids: Sequence[int],
    max_tokens: int = MAX_ANSWER,
    temperature: float = 0.0,
    seed: int = 0,
    wait: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """The answers to all prompts, as one batch; `wait` is called every few steps and may take its time."""
    longest, stop_id, stops = max(map(len, prompts)), stop_ids[0], torch.tensor(stop_ids)
    padding = torch.tensor([longest - len(prompt) for prompt in prompts])
    tokens = torch.tensor([[stop_id] * (longest - len(prompt)) + prompt for prompt in prompts])
    tokens = torch.cat((tokens, torch.full((len(prompts), max_tokens), stop_id)), dim=1)
    batch, generator = Batch(tokens, padding, longest, stop_ids), torch.Generator().manual_seed(seed)
    cache, rows = model.new_cache(*tokens.shape), torch.arange(len(prompts))
    last = list[Tensor]()
    for part in (slice(start, start + PREFILL_ROWS) for start in range(0, len(prompts), PREFILL_ROWS)):
        positions = (torch.arange(longest)[None] - padding[part, None]).clamp(min=0)
        mask = causal_mask(padding[part], longest, longest, model.dtype)
        last.append(model.forward(tokens[part, :longest], positions, cache.rows(part), 0, mask)[:, -1].clone())
    chosen = next_tokens(model.logits(torch.cat(last)), temperature, generator)
    for end in range(longest, longest + max_tokens):
        tokens[rows, end] = chosen
        is_running = ~torch.isin(chosen, stops)
        if (end - longest) % CHECK_STEPS == CHECK_STEPS - 1:
            wait()
            is_running &= torch.tensor([not _is_looping(batch, row, end) for row in rows.tolist()])
        if end + 1 == longest + max_tokens or not is_running.any():
            break
        if is_running.float().mean() < 1.0 - FINISHED_SHARE:
            kept = is_running.nonzero().squeeze(1)
            rows, chosen, cache, is_running = rows[kept], chosen[kept], cache.rows(kept), is_running[kept]
        mask = causal_mask(padding[rows], 1, end + 1, model.dtype)
        states = model.forward(chosen[:, None], end - padding[rows, None], cache, end, mask)[:, 0]
        chosen = torch.where(is_running, next_tokens(model.logits(states), temperature, generator), stop_id)
    return [batch.answer(row) for row in range(len(prompts))]


def _is_looping(batch: Batch, row: int, end: int) -> bool:
    if row not in batch.looped_at:
        written = batch.tokens[row, batch.prompt_length : end + 1].tolist()
        start = None if set(batch.stop_ids) & set(written) else loop_start(written)
        if start is not None:
            batch.looped_at[row] = start
    return row in batch.looped_at


class AnswerWriter:
    """Writes groups of answers, and remembers what was answered, so that no answer is there twice."""

    def __init__(self, model: BatchedLlama, tokenizer: Tokenizer, folder: Path) -> None:
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.stop_ids, self.known, self.tokens = sorted(tokenizer.stop_token_ids), set[tuple[int, ...]](), 0
        for path in sorted(folder.glob("*.safetensors")):
            self._new_ones(load_answers(path))

    def question(self, messages: Sequence[dict[str, str]], is_held_out: bool) -> Question:
        rendered = self.tokenizer.chat.render(list(messages), add_generation_prompt=True)
        return Question(tuple(messages), self.tokenizer.encode(rendered, parse_special=True), is_held_out)

    def write_group(self, path: Path, questions: Sequence[Question], temperature: float, seed: int) -> None:
        """Answer a group and its follow-up turns, and store both."""
        answers = self._answer(questions, temperature, seed)
        later = self._follow_ups(questions, answers, random.Random(seed))
        if later := [question for question in later if len(question.prompt) <= MAX_CONVERSATION]:
            answers += self._answer(later, temperature, seed)
        save_answers(path, self._new_ones(answers))

    def _answer(self, questions: Sequence[Question], temperature: float, seed: int) -> list[Answer]:
        prompts = [question.prompt for question in questions]
        written = write_answers(
            self.model, prompts, self.stop_ids, temperature=temperature, seed=seed, wait=self.wait_while_paused
        )
        return [
            Answer(question.prompt + answer, len(question.prompt), question.is_held_out, temperature)
            for question, answer in zip(questions, written, strict=True)
        ]

    def _follow_ups(
        self, questions: Sequence[Question], answers: Sequence[Answer], rng: random.Random
    ) -> list[Question]:
        """Second turns of some questions that were answered to the end: by a template, or as the model goes on."""
        finished = [
            (
                question,
                (*question.messages, {"role": "assistant", "content": self.tokenizer.decode(answer.answered[:-1])}),
            )
            for question, answer in zip(questions, answers, strict=True)
            if answer.tokens[-1] in self.stop_ids and rng.random() < FOLLOW_UP_SHARE
        ]
        by_model = [each for each in finished if rng.random() < ASKED_BY_MODEL]
        asked = [(each, rng.choice(FOLLOW_UPS)) for each in finished if each not in by_model]
        if by_model:
            opened = [
                self.tokenizer.chat.render(list(messages), add_generation_prompt=False) + USER_TURN
                for _question, messages in by_model
            ]
            prompts = [self.tokenizer.encode(text, parse_special=True) for text in opened]
            written = write_answers(
                self.model,
                prompts,
                self.stop_ids,
                MAX_ASKED,
                ASKING_TEMPERATURE,
                rng.getrandbits(32),
                self.wait_while_paused,
            )
            asked += [
                (each, self.tokenizer.decode(tokens[:-1]).strip())
                for each, tokens in zip(by_model, written, strict=True)
                if tokens and tokens[-1] in self.stop_ids
            ]
        return [
            self.question((*messages, {"role": "user", "content": text}), question.is_held_out)
            for (question, messages), text in asked
            if text
        ]

    def _new_ones(self, answers: Sequence[Answer]) -> list[Answer]:
        kept = list[Answer]()
        for answer in answers:
            key = tuple(answer.answered[:ALIKE_TOKENS])
            if len(key) >= MIN_ANSWER and key not in self.known:
                self.known.add(key)
                self.tokens += len(answer.answered)
                kept.append(answer)
        return kept

    def wait_while_paused(self) -> None:
        while (self.folder / "PAUSE").exists():
            time.sleep(PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--target", "--questions", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    dtype = torch.bfloat16 if has_cpu_bfloat16() else torch.float32  # whichever is faster here
    model = BatchedLlama(arguments.target, dtype=dtype)
    writer = AnswerWriter(model, Tokenizer(arguments.target), arguments.out)
    rows = [json.loads(line) for line in arguments.questions.read_text(encoding="utf-8").splitlines()]
    questions = [writer.question([{"role": "user", "content": row["text"]}], row["is_held_out"]) for row in rows]
    questions = [question for question in questions if len(question.prompt) <= MAX_PROMPT]
    print(f"{len(questions)} questions, {writer.tokens} answer tokens so far", flush=True)
    for number, group in enumerate(groups(questions)):
        path = arguments.out / f"{number:06d}.safetensors"
        if not path.is_file():
            writer.wait_while_paused()
            started, before = time.process_time(), writer.tokens
            writer.write_group(path, group, temperature_of(number), number)
            rate = (writer.tokens - before) / (time.process_time() - started)
            print(f"{path.stem} of {len(questions) // GROUP_SIZE}: T {temperature_of(number)}, "
                  f"{rate:.0f} tokens/s of one core, {writer.tokens} in all", flush=True)  # fmt: skip


def groups(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    """Groups of questions with prompts of similar length, as the shorter ones are padded."""
    for start in range(0, len(questions), GROUP_SIZE * SORTED_GROUPS):
        part = questions[start : start + GROUP_SIZE * SORTED_GROUPS]
        similar = sorted(part, key=lambda question: len(question.prompt))
        yield from (similar[first : first + GROUP_SIZE] for first in range(0, len(similar), GROUP_SIZE))


def temperature_of(group: int) -> float:
    """By turns, and shifted at each run of sorted groups, so that prompts of every length have each."""
    return TEMPERATURES[(group + group // SORTED_GROUPS) % len(TEMPERATURES)]


if __name__ == "__main__":
    main()
