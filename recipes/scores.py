"""Scores of answers: edits by their text, chat by its end, repetitions and quotations."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from recipes.dialogues import fenced
from recipes.edit_example import Edit
from recipes.evaluation_questions import QUESTIONS
from recipes.snippets import parses


@dataclass(frozen=True)
class KindScore:
    """How a kind of edit went."""

    kind: str
    tried: int
    exact: float
    parses: float
    similarity: float


@dataclass(frozen=True)
class ChatScore:
    """How the fixed questions went: counts out of `asked`."""

    question_count: int
    ended: int
    looping_answers: int
    expected_answers: int


def score_edits(kind: str, pairs: Sequence[tuple[Edit, str]]) -> KindScore:
    count = len(pairs)
    exact = sum(written == fenced(edit.after) for edit, written in pairs)
    valid = sum(parses(code_of(written)) for _, written in pairs)
    likeness = sum(difflib.SequenceMatcher(None, fenced(e.after), w, autojunk=False).ratio() for e, w in pairs)
    return KindScore(kind, count, exact / count, valid / count, likeness / count)


def code_of(answer: str) -> str:
    found = re.match(r"```python\n(.*)```\Z", answer, re.DOTALL)
    return found.group(1) if found else "("


def has_repetition_loop(tokens: Sequence[int], width: int = 8, times: int = 3) -> bool:
    """Whether some run of `width` tokens stands there `times` times or more."""
    runs = Counter(tuple(tokens[start : start + width]) for start in range(len(tokens) - width + 1))
    return bool(runs) and max(runs.values()) >= times


@dataclass(frozen=True)
class Reply:
    """An answer to a fixed question."""

    text: str
    tokens: Sequence[int]
    has_ended: bool


def score_chat(replies: Sequence[Reply]) -> ChatScore:
    """How the answers to the fixed questions went."""
    quoted = sum(
        question.expected is not None and question.expected.lower() in reply.text.lower()
        for question, reply in zip(QUESTIONS, replies, strict=True)
    )
    ended = sum(reply.has_ended for reply in replies)
    return ChatScore(len(replies), ended, sum(has_repetition_loop(reply.tokens) for reply in replies), quoted)
