"""Turns documents into the training rows of a stage, with a weight for each token.

Answers carry the loss, four times as much where they differ from the text that they copy. Short and simple rows come
first, long ones with several changes last.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from recipes import dialogues
from recipes.code_questions import about_code
from recipes.corpus import Document, read_documents
from recipes.dialogues import Dialogue, Turn
from recipes.edit_example import Edit
from recipes.edit_examples import SHARES, make_edit
from recipes.phrasing import instruction_phrase
from recipes.quoting import QuotablePassage, defined_in_prose, quotable_passages, quoting_dialogue
from recipes.row_files import TrainingRow
from recipes.snippets import Snippet, snippets_of
from recipes.train_tokenizer import ASSISTANT, END, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX, SYSTEM, USER, token_of

CHANGED = 4.0
PROMPT = 0.0


@dataclass(frozen=True)
class Mixture:
    """How the tokens of the instruction stage are shared out."""

    edits: float = 0.66
    copies: float = 0.04
    code_questions: float = 0.07
    quotes: float = 0.10
    talk: float = 0.04
    repetitions: float = 0.02
    middles: float = 0.03
    windows: float = 0.04


class Encoder:
    """Dialogues to rows, with the loss where it belongs."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.mark = {
            name: token_of(tokenizer, name)
            for name in (END, USER, ASSISTANT, SYSTEM, FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE)
        }

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def dialogue(self, dialogue: Dialogue, difficulty: float = 0.0) -> TrainingRow:
        """Loss on the answers and their ends only."""
        tokens: list[int] = []
        weights: list[float] = []
        if dialogue.system is not None:
            tokens += [self.mark[SYSTEM], *self.encode(dialogue.system), self.mark[END]]
        for turn in dialogue.turns:
            question, answer = self.encode(turn.question), self.encode(turn.answer)
            tokens += [self.mark[USER], *question, self.mark[END], self.mark[ASSISTANT]]
            weights += [PROMPT] * (len(tokens) - len(weights))
            tokens += [*answer, self.mark[END]]
            weights += [1.0] * (len(answer) + 1)
        return TrainingRow(tokens, weights, difficulty)

    def edit(self, edit: Edit, rng: random.Random) -> TrainingRow:
        """An edit as a dialogue; what differs from the input weighs more, and so does the token after it."""
        question = dialogues.edit_question(edit, rng)
        row = self.dialogue(
            Dialogue((Turn(question, dialogues.fenced(edit.after)),), dialogues.random_system_prompt(rng))
        )
        before, after = self.encode(dialogues.fenced(edit.before)), self.encode(dialogues.fenced(edit.after))
        start = len(row.tokens) - len(after) - 1
        weights = row.weights.copy()
        for tag, _, _, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag != "equal":
                for index in range(first, min(last + 1, len(after))):
                    weights[start + index] = CHANGED
        return TrainingRow(row.tokens, weights, difficulty_of(len(row.tokens), is_edit=True))

    def middle(self, text: str, rng: random.Random) -> TrainingRow:
        """Fill-in-the-middle: the lines between two places of a text."""
        lines = text.splitlines(keepends=True)
        first = rng.randrange(len(lines))
        last = min(len(lines), first + rng.randint(1, 4))
        prefix, middle, suffix = "".join(lines[:first]), "".join(lines[first:last]), "".join(lines[last:])
        head = [
            self.mark[FIM_PREFIX],
            *self.encode(prefix),
            self.mark[FIM_SUFFIX],
            *self.encode(suffix),
            self.mark[FIM_MIDDLE],
        ]
        answer = [*self.encode(middle), self.mark[END]]
        return TrainingRow(
            [*head, *answer], [PROMPT] * len(head) + [1.0] * len(answer), difficulty_of(len(head), is_edit=False)
        )

    def window(self, text: str, rng: random.Random, length: int) -> TrainingRow | None:
        """A piece of a file as it is, loss everywhere."""
        tokens = self.encode(text[:40000])
        if len(tokens) < 48:
            return None
        start = rng.randrange(max(1, len(tokens) - length))
        piece = tokens[start : start + length]
        return TrainingRow(piece, [1.0] * len(piece), difficulty_of(len(piece), is_edit=False))


def difficulty_of(length: int, *, is_edit: bool) -> float:
    """0 for the shortest, near 1 for the longest rows; plain copies come before edits."""
    return min(1.0, length / 1200.0) + (0.15 if is_edit else 0.0)


def shuffled(documents: Iterator[Document], rng: random.Random) -> list[Document]:
    held = list(documents)
    rng.shuffle(held)
    return held


def pretraining_rows(encoder: Encoder, corpus: Path | None, tokens: int, seed: int) -> Iterator[TrainingRow]:
    """Windows of code and prose."""
    rng = random.Random(seed)
    documents = shuffled(read_documents(corpus, validation=False, tiers=("A", "B")), rng)
    while tokens > 0:
        for document in documents:
            for _ in range(2):
                row = encoder.window(document.text, rng, 255 if rng.random() < 0.85 else 511)
                if row is not None:
                    tokens -= len(row.tokens)
                    yield row
            if tokens <= 0:
                return


def instruction_rows(
    encoder: Encoder, corpus: Path | None, tokens: int, seed: int, mixture: Mixture = Mixture()
) -> Iterator[TrainingRow]:
    """Rows of all kinds until there are `tokens` tokens; the source that is furthest below its share comes next."""
    rng = random.Random(seed)
    documents = shuffled(read_documents(corpus, validation=False), rng)
    passages = [*quotable_passages(corpus, validation=False), *defined_in_prose(corpus, validation=False)]
    sources: dict[str, Iterator[TrainingRow | None]] = {
        "edits": edit_rows(encoder, documents, rng),
        "copies": copy_rows(encoder, documents, rng),
        "code_questions": question_rows(encoder, documents, rng),
        "quotes": quote_rows(encoder, passages, rng) if passages else talk_rows(encoder, rng),
        "talk": talk_rows(encoder, rng),
        "repetitions": repetition_rows(encoder, documents, rng),
        "middles": middle_rows(encoder, documents, rng),
        "windows": window_rows(encoder, documents, rng),
    }
    spent = dict.fromkeys(sources, 0)
    while sum(spent.values()) < tokens:
        name = min(sources, key=lambda source: spent[source] / getattr(mixture, source))
        row = next(sources[name])
        if row is not None and len(row.tokens) <= 1536:
            spent[name] += len(row.tokens)
            yield row


def snippets(documents: list[Document], rng: random.Random, share: float) -> Iterator[Snippet]:
    """Snippets from everywhere, for ever; from each file this share of them, of long ones fewer."""
    while True:
        for document in rng.sample(documents, len(documents)):
            if document.is_python and len(document.text) < 200_000:
                for snippet in snippets_of(document.text, rng):
                    if rng.random() < share * min(1.0, 15.0 / len(snippet.lines)):
                        yield snippet


def edit_rows(encoder: Encoder, documents: list[Document], rng: random.Random) -> Iterator[TrainingRow]:
    """Edits in the shares of their kinds: a kind that comes late is looked for first."""
    made = dict.fromkeys(SHARES, 0)
    for snippet in snippets(documents, rng, 0.25):
        for kind in sorted(SHARES, key=lambda kind: made[kind] / SHARES[kind])[:4]:
            edit = make_edit(kind, snippet, rng)
            if edit is not None:
                made[kind] += 1
                yield encoder.edit(edit, rng)
                break


def copy_rows(encoder: Encoder, documents: list[Document], rng: random.Random) -> Iterator[TrainingRow]:
    for snippet in snippets(documents, rng, 0.1):
        question = f"{instruction_phrase('copy', rng)}\n\n{dialogues.fenced(snippet.text)}"
        row = encoder.dialogue(Dialogue((Turn(question, dialogues.fenced(snippet.text)),)))
        yield TrainingRow(row.tokens, row.weights, difficulty_of(len(row.tokens), is_edit=False) - 0.3)


def question_rows(encoder: Encoder, documents: list[Document], rng: random.Random) -> Iterator[TrainingRow | None]:
    for snippet in snippets(documents, rng, 0.1):
        dialogue = about_code(snippet, rng)
        if dialogue is not None:
            yield finished_row(encoder, dialogue, rng)


def quote_rows(encoder: Encoder, passages: list[QuotablePassage], rng: random.Random) -> Iterator[TrainingRow | None]:
    while True:
        dialogue = quoting_dialogue(passages, rng)
        yield finished_row(encoder, dialogue, rng) if dialogue is not None else None


def finished_row(encoder: Encoder, dialogue: Dialogue, rng: random.Random) -> TrainingRow:
    """The dialogue as a row, now and then with a turn of small talk around it."""
    if rng.random() < 0.15:
        dialogue = dialogues.with_small_talk(dialogue, rng)
    row = encoder.dialogue(dialogue)
    return TrainingRow(row.tokens, row.weights, difficulty_of(len(row.tokens), is_edit=False))


def talk_rows(encoder: Encoder, rng: random.Random) -> Iterator[TrainingRow]:
    while True:
        yield encoder.dialogue(dialogues.small_talk(rng, rng.choice((1, 1, 1, 2, 3))), rng.random())


def repetition_rows(encoder: Encoder, documents: list[Document], rng: random.Random) -> Iterator[TrainingRow]:
    while True:
        for document in documents:
            if document.is_python:
                continue
            paragraphs = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", document.text[:20000])]
            fitting = [part for part in paragraphs if 30 < len(part) < 400 and part.isascii()]
            if fitting:
                yield finished_row(encoder, dialogues.repetition(rng.choice(fitting), rng), rng)


def middle_rows(encoder: Encoder, documents: list[Document], rng: random.Random) -> Iterator[TrainingRow]:
    for snippet in snippets(documents, rng, 0.1):
        yield encoder.middle(snippet.text, rng)


def window_rows(encoder: Encoder, documents: list[Document], rng: random.Random) -> Iterator[TrainingRow | None]:
    while True:
        for document in documents:
            yield encoder.window(document.text, rng, 255)
