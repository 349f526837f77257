"""A reference corpus: passages about topics that a model can quote, found by the words of a question (BM25).

A small model knows little, but it can copy from its prompt, and speculation is fastest for copies. The same question
always finds the same passages, so a conversation does not store them. A passage is used only when the question covers
its topic, so small talk gets none. Knows no model.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_PASSAGES = 2  # per question
MAX_QUESTION_WORDS = 24  # a longer text, or one of several lines, is a task and not a question
TOPIC_WEIGHT = 3  # words of a topic count this many times
MIN_TOPIC_COVERAGE = 0.75  # the share of a topic's words that the question must contain
COMMON_WORDS = frozenset(["python"])  # ignored unless the question has no other content words
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
    topic: str
    text: str
    source: str = ""


class ReferenceCorpus:
    def __init__(self, passages: Sequence[Passage]) -> None:
        import bm25s

        self.passages = tuple(passages)
        self._topics = [frozenset(content_words(passage.topic)) for passage in self.passages]
        self._index = bm25s.BM25()
        weighted = [[*(content_words(p.topic) * TOPIC_WEIGHT), *content_words(p.text)] for p in self.passages]
        self._index.index(weighted, show_progress=False)

    def search(self, question: str) -> tuple[Passage, ...]:
        """The passages whose topics the question covers, best first; none for small talk."""
        if len(question.split()) > MAX_QUESTION_WORDS or "\n" in question.strip():
            return ()
        words = content_words(question)
        specific = set(words) - COMMON_WORDS or set(words)
        candidates = [n for n, topic in enumerate(self._topics) if _covers_topic(topic, words) and topic & specific]
        if not candidates:
            return ()
        scores = self._index.get_scores(words)
        best = sorted(candidates, key=lambda n: (-len(self._topics[n] & specific), -scores[n]))
        return tuple(self.passages[n] for n in best[:MAX_PASSAGES])


def read_reference_corpus(path: Path) -> ReferenceCorpus:
    """Read a corpus from a file: one passage per line, as JSON."""
    return ReferenceCorpus([Passage(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()])


def with_passages(question: str, passages: Sequence[Passage]) -> str:
    if not passages:
        return question
    texts = "\n\n".join(f"{passage.topic}: {passage.text}" for passage in passages)
    return f"{question}\n\nReference:\n{texts}"


def content_words(text: str) -> list[str]:
    """The content words of a text, in lower case and without a plural s."""
    words = WORD.findall(text.lower())
    return [word.removesuffix("s") if len(word) > 3 else word for word in words if word not in STOPWORDS]


def _covers_topic(topic: frozenset[str], words: Sequence[str]) -> bool:
    return bool(topic) and len(topic.intersection(words)) / len(topic) >= MIN_TOPIC_COVERAGE
