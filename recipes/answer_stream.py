"""An endless stream of answers of a model: to questions of a file, to its own, and to second turns.

An instruct model that continues an opened user turn writes questions like those that it was trained on. Duplicates
and answers that begin alike are dropped. Held-out questions are answered for the evaluation only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tokenizers
import torch
from torch import Tensor

from recipes.answer_store import StreamAnswer
from recipes.answer_waves import Tokens, WaveSettings, write_wave
from recipes.batched_llama import BatchedLlama
from recipes.question_words import FOLLOW_UPS
from recipes.starter_answers import ALIKE_TOKENS, FOLLOW_UP_SHARE, MAX_CONVERSATION, MAX_PROMPT, MIN_ANSWER
from specchat.text.tokenizer import Tokenizer

TEMPERATURES, TEMPERATURE_SHARES = (0.0, 0.2, 0.7, 1.0), (0.5, 0.2, 0.2, 0.1)
EVALUATED_TEMPERATURES = (0.0, 0.2, 0.7)
ASKING_TEMPERATURES, ASKING_TOP_P = (0.8, 0.9, 1.0), 0.95
MIN_QUESTION, ALIKE_QUESTION = 4, 12  # tokens
CORPUS, ASKED, LATER = "corpus", "asked", "later"


@dataclass(frozen=True)
class StreamSizes:
    """How much is written at once."""

    round_questions: int = 3000  # of the file, in a round
    asked: int = 4096  # rows that ask, in a round
    cache_tokens: int = 1_600_000  # rows times columns of the KV cache of a wave
    max_answer: int = 350
    max_question: int = 96
    evaluated: int = 900  # held-out questions of each kind
    evaluated_answer: int = 200


@dataclass(frozen=True)
class Prompt:
    """The tokens up to where an answer begins, and where its question comes from."""

    tokens: Tokens
    kind: str


@dataclass(frozen=True)
class TurnTokens:
    """What a chat template puts around the turns of a conversation."""

    opening: Tokens  # up to the first question
    closing: Tokens  # from a question to its answer
    reopening: Tokens  # from the stop token of an answer to the next question

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TurnTokens:
        marks = ("FIRSTQUESTION", "FIRSTANSWER", "SECONDQUESTION")
        messages = [
            {"role": role, "content": mark} for role, mark in zip(("user", "assistant", "user"), marks, strict=True)
        ]
        rendered = tokenizer.chat.render(messages, add_generation_prompt=True)
        (opening, rest), mark = rendered.split(marks[0]), marks[2]
        reopening, closing = rest.split(marks[1])[1].split(mark)
        for stop in sorted(tokenizer.stop_token_ids):
            reopening = reopening.removeprefix(tokenizer.token_bytes(stop).decode())
        return cls(*(as_tokens(tokenizer.encode(text, parse_special=True)) for text in (opening, closing, reopening)))


def as_tokens(ids: Sequence[int]) -> Tokens:
    return np.array(ids, dtype=np.int32)


class AnswerStream:
    """Writes rounds of answers, and remembers what was asked and answered."""

    def __init__(
        self, model: BatchedLlama, folder: Path, sizes: StreamSizes, seed: int, is_over: Callable[[], bool]
    ) -> None:
        self.model, self.sizes, self.is_over = model, sizes, is_over
        self.tokenizer = Tokenizer(folder)
        self.backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.turns = TurnTokens.of(self.tokenizer)
        self.stop_ids = tuple(sorted(self.tokenizer.stop_token_ids))
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator(model.device).manual_seed(seed)
        self.known_questions, self.known_answers = set[bytes](), set[bytes]()
        self.later = list[Prompt]()
        self.questions, self.held_out = list[Prompt](), list[Prompt]()
        self.queue = list[Prompt]()

    def read_questions(self, path: Path) -> None:
        """Questions that do not look like control tokens, and are not too long."""
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if "<|" not in row["text"]]
        message = [{"role": "user", "content": "FIRSTQUESTION"}]
        before, after = self.tokenizer.chat.render(message, add_generation_prompt=True).split("FIRSTQUESTION")
        encoded = self.backend.encode_batch(
            [f"{before}{row['text'].strip()}{after}" for row in rows], add_special_tokens=False
        )
        for row, encoding in zip(rows, encoded, strict=True):
            if len(encoding.ids) <= MAX_PROMPT:
                (self.held_out if row["is_held_out"] else self.questions).append(
                    Prompt(as_tokens(encoding.ids), CORPUS)
                )

    def ask(self) -> list[Prompt]:
        """New questions of the model itself."""
        prompts, closing = [self.turns.opening] * self.sizes.asked, self.turns.closing
        written = self._write(prompts, self._drawn(ASKING_TEMPERATURES), self.sizes.max_question, ASKING_TOP_P)
        asked = list[Prompt]()
        for question in written:
            key = question[:ALIKE_QUESTION].tobytes()
            if len(question) > MIN_QUESTION and question[-1] in self.stop_ids and key not in self.known_questions:
                self.known_questions.add(key)
                asked.append(Prompt(np.concatenate((self.turns.opening, question[:-1], closing)), ASKED))
        return asked

    def evaluation_answers(self) -> list[StreamAnswer]:
        """Answers to held-out questions of the file, and to the first ones that the model asks, at each temperature."""
        asked = self.ask()[: self.sizes.evaluated]
        prompts = [*self._chosen(self.held_out, self.sizes.evaluated), *asked]
        answers = list[StreamAnswer]()
        for temperature in EVALUATED_TEMPERATURES:
            temperatures = np.full(len(prompts), temperature)
            answers += self._answer(prompts, temperatures, self.sizes.evaluated_answer, top_p=1.0)
        return answers

    def next_round(self) -> list[StreamAnswer]:
        """Answers to new questions of every kind, without those that are known."""
        prompts = [*self.ask(), *self._next_questions(), *self.later]
        answers = self._answer(
            prompts, self._drawn(TEMPERATURES, len(prompts), TEMPERATURE_SHARES), self.sizes.max_answer
        )
        self.later = list(self._later(answers))
        return self._new_ones(answers)

    def _next_questions(self) -> list[Prompt]:
        if len(self.queue) < self.sizes.round_questions:
            self.queue += self._chosen(self.questions, len(self.questions))
        found, self.queue = self.queue[: self.sizes.round_questions], self.queue[self.sizes.round_questions :]
        return found

    def _chosen(self, prompts: Sequence[Prompt], count: int) -> list[Prompt]:
        return [prompts[index] for index in self.rng.permutation(len(prompts))[:count]]

    def _drawn(
        self, temperatures: Sequence[float], count: int = 0, shares: Sequence[float] | None = None
    ) -> np.ndarray:
        return self.rng.choice(temperatures, count or self.sizes.asked, p=shares)

    def _answer(
        self, prompts: Sequence[Prompt], temperatures: np.ndarray, max_tokens: int, top_p: float = 0.9
    ) -> list[StreamAnswer]:
        written = self._write([prompt.tokens for prompt in prompts], temperatures, max_tokens, top_p)
        return [
            StreamAnswer(np.concatenate((prompt.tokens, answer)), len(prompt.tokens), float(temperature), prompt.kind)
            for prompt, answer, temperature in zip(prompts, written, temperatures, strict=True)
        ]

    def _write(
        self, prompts: Sequence[Tokens], temperatures: np.ndarray, max_tokens: int, top_p: float
    ) -> list[Tokens]:
        """What follows each prompt, in waves of similar length; nothing for those whose turn never came."""
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        written, nothing = dict[int, Tokens](), as_tokens([])
        settings = WaveSettings(self.stop_ids, max_tokens, top_p, self.is_over)
        while order and not self.is_over():
            part = self._wave([len(prompts[index]) + max_tokens for index in order])
            wave = order[-part:]
            drawn = torch.tensor(temperatures[wave], dtype=torch.float32)
            answers = self._try_wave([prompts[index] for index in wave], drawn, settings)
            if answers is not None:
                written |= dict(zip(wave, answers, strict=True))
                order = order[:-part]
        return [written.get(index, nothing) for index in range(len(prompts))]

    def _wave(self, columns: Sequence[int]) -> int:
        """How many of the longest prompts fit into one wave."""
        return min(len(columns), max(self.sizes.cache_tokens // columns[-1], 1))

    def _try_wave(self, prompts: Sequence[Tokens], drawn: Tensor, settings: WaveSettings) -> list[Tokens] | None:
        """The answers, or smaller waves from now on if the memory does not suffice."""
        try:
            return write_wave(self.model, prompts, drawn, settings, self.generator)
        except torch.OutOfMemoryError:
            if len(prompts) == 1:
                raise
            self.sizes = replace(self.sizes, cache_tokens=self.sizes.cache_tokens // 2)
            print(f"out of memory: {self.sizes.cache_tokens} cache tokens from now on", flush=True)
        torch.cuda.empty_cache()
        return None

    def _later(self, answers: Sequence[StreamAnswer]) -> Iterator[Prompt]:
        """Second turns of some answers of first turns that were written to the end: by a template, or by the model."""
        finished = [
            answer.tokens
            for answer in answers
            if answer.kind != LATER
            and answer.tokens[-1] == self.turns.closing[0]
            and self.rng.random() < FOLLOW_UP_SHARE
        ]
        opened = [np.concatenate((tokens, self.turns.reopening)) for tokens in finished]
        opened = [tokens for tokens in opened if len(tokens) < MAX_CONVERSATION]
        half = len(opened) // 2
        asked = self._write(opened[:half], np.full(half, 0.7), self.sizes.max_question, ASKING_TOP_P)
        asked = [tokens[:-1] if len(tokens) and tokens[-1] in self.stop_ids else as_tokens([]) for tokens in asked]
        templates = [as_tokens(self.backend.encode(text, add_special_tokens=False).ids) for text in FOLLOW_UPS]
        asked += [templates[self.rng.integers(len(templates))] for _ in opened[half:]]
        for tokens, question in zip(opened, asked, strict=True):
            prompt = np.concatenate((tokens, question, self.turns.closing))
            if len(question) and len(prompt) <= MAX_CONVERSATION:
                yield Prompt(prompt, LATER)

    def _new_ones(self, answers: Sequence[StreamAnswer]) -> list[StreamAnswer]:
        kept = list[StreamAnswer]()
        for answer in answers:
            key = answer.answered[:ALIKE_TOKENS].tobytes()
            if len(answer.answered) >= MIN_ANSWER and key not in self.known_answers:
                self.known_answers.add(key)
                kept.append(answer)
        return kept
