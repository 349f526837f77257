"""A small book that a model may quote from: passages about topics, found by the words of a question (BM25).

A small model cannot know, but it can copy what stands before it, and copies are what speculation is quickest at.
The same question always finds the same passages, so nothing of this has to be stored with a conversation. Knows no
model; a passage is shown only where its topic is really asked for, so that a greeting stays a greeting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import InputError

MAX_PASSAGES = 2  # passages for one question
MAX_QUESTION_WORDS = 24  # words; more than that, or several lines, is a task and not a question
TOPIC_WEIGHT = 3  # times that the words of a topic count
MIN_TOPIC_COVERAGE = 0.75  # of a topic's words must stand in the question
COMMON_WORDS = frozenset(["python"])  # says nothing of what is asked, unless nothing else is
WORD = re.compile(r"\w+")
STOPWORDS = frozenset(
    WORD.findall("""
        a about an and are as at be by can could did do does for from have how i if in into is it its me mean my no not
        of on or please should tell that the their there they this to use used was we what when where which who why
        will with would you your define describe explain module
    """)
)


@dataclass(frozen=True)
class Passage:
    """What the book says of a topic, and where that is from."""

    topic: str
    text: str
    source: str = ""


class ReferenceCorpus:
    """Passages that can be found by a question."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        import bm25s

        self.passages = tuple(passages)
        self._topics = [frozenset(content_words(passage.topic)) for passage in self.passages]
        self._index = bm25s.BM25()
        weighted = [[*(content_words(p.topic) * TOPIC_WEIGHT), *content_words(p.text)] for p in self.passages]
        self._index.index(weighted, show_progress=False)

    def search(self, question: str) -> tuple[Passage, ...]:
        """The passages whose topics this question is about, best first; none for small talk."""
        if len(question.split()) > MAX_QUESTION_WORDS or "\n" in question.strip():
            return ()
        asked = content_words(question)
        telling = set(asked) - COMMON_WORDS or set(asked)
        candidates = [n for n, topic in enumerate(self._topics) if _covers_topic(topic, asked) and topic & telling]
        if not candidates:
            return ()
        scores = self._index.get_scores(asked)
        best = sorted(candidates, key=lambda n: (-len(self._topics[n] & telling), -scores[n]))
        return tuple(self.passages[n] for n in best[:MAX_PASSAGES])


def read_reference_corpus(path: Path) -> ReferenceCorpus:
    """The book in this file: one passage a line, as JSON."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return ReferenceCorpus([Passage(**json.loads(line)) for line in lines if line.strip()])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise InputError(
            f'{path}: not a reference; each line must be {{"topic": …, "text": …, "source": …}}'
        ) from error


def with_passages(question: str, passages: Sequence[Passage]) -> str:
    """What the user says to the model: the question, and what the book says about it."""
    if not passages:
        return question
    shown = "\n\n".join(f"{passage.topic}: {passage.text}" for passage in passages)
    return f"{question}\n\nReference:\n{shown}"


def content_words(text: str) -> list[str]:
    """The words that a text is about, in lower case and without the s of a plural."""
    found = WORD.findall(text.lower())
    return [word.removesuffix("s") if len(word) > 3 else word for word in found if word not in STOPWORDS]


def _covers_topic(topic: frozenset[str], asked: Sequence[str]) -> bool:
    return bool(topic) and len(topic.intersection(asked)) / len(topic) >= MIN_TOPIC_COVERAGE
