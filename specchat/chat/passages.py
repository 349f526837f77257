"""Pieces of files, and which of them a question is about. Knows no folder and no model.

Words decide (BM25): a piece scores for each word of the question that it holds, more for rare words. Names of code are
taken apart and words lose their endings, so `verifyTree` and `verify_tree` are found by "how are trees verified?".

A package may offer a better judge of meaning, such as an embedding model, as an entry point:

    [project.entry-points."specchat.rankers"]
    my-ranker = "my_package:rank"

`rank` is a `Ranker`. Of several, the first by name is asked. It sees only the best pieces by words (MOST_RANKED), in
that order, and its order counts. It is imported when a question needs pieces, and not before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from specchat.chat.reference_corpus import content_words
from specchat.errors import InputError
from specchat.syntax import language_of, split_chunks

MAX_CHUNK_LINES = 40
MAX_RERANKED = 200
PATH_TERM_WEIGHT = 3  # times that the words of a path count
MIN_RELATIVE_SCORE = 0.25  # of the best score; less is chance
RERANKER_GROUP = "specchat.rankers"
WORD_SUFFIX = re.compile(r"(?<=\w{4})(?:ied?|ing|ed|e|y)$")
DOUBLED_CONSONANT = re.compile(r"(?<=\w\w)([bdgmnprst])\1$")
IDENTIFIER_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")  # where a name of code can be taken apart


@dataclass(frozen=True)
class FileChunk:
    """Some lines of a file, counted from 1, the last one included."""

    file: str
    first_line: int
    last_line: int
    text: str

    @property
    def name(self) -> str:
        """As the model is shown it: "a.py lines 10-14"."""
        return f"{self.file} lines {self.first_line}-{self.last_line}"

    @property
    def citation(self) -> str:
        """As a person cites it: "a.py:10-14"."""
        return f"{self.file}:{self.first_line}-{self.last_line}"


class Reranker(Protocol):
    """How well each passage answers a question; more is better, the scale is free. One number for each passage."""

    def __call__(self, question: str, passages: Sequence[str]) -> Sequence[float]: ...


def split_file(file: str, text: str) -> list[FileChunk]:
    """A text in pieces: definitions where its language is known, else what stands between blank lines."""
    pieces = split_chunks(text, language_of(file, text), MAX_CHUNK_LINES)
    return [FileChunk(file, piece.first_line, piece.last_line, piece.text) for piece in pieces]


def terms(text: str) -> list[str]:
    """The stems of the words that a text is about, and of those that its names are made of."""
    return [_stem(word) for word in content_words(IDENTIFIER_BOUNDARY.sub(" ", text))]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    """What the forms of a word begin with: "verif" of "verified" and "verify", "commit" of "committed"."""
    return DOUBLED_CONSONANT.sub(r"\1", WORD_SUFFIX.sub("", word))


def rank_chunks(candidates: Sequence[FileChunk], question: str) -> list[FileChunk]:
    """The pieces that a question is about, best first; none when no word of it stands anywhere."""
    asked = terms(question)
    held = [[*(terms(piece.file) * PATH_TERM_WEIGHT), *terms(piece.text)] for piece in candidates]
    if not any(set(asked).intersection(words) for words in held):
        return []
    import bm25s

    index = bm25s.BM25()
    index.index(held, show_progress=False)
    scores = index.get_scores(asked)
    least = MIN_RELATIVE_SCORE * max(scores)
    order = sorted((n for n, score in enumerate(scores) if score > 0 and score >= least), key=lambda n: -scores[n])
    return _rerank([candidates[n] for n in order[:MAX_RERANKED]], question)


def _rerank(best: list[FileChunk], question: str) -> list[FileChunk]:
    """In the order of the installed ranker, if there is one."""
    from importlib.metadata import entry_points

    offered = sorted(entry_points(group=RERANKER_GROUP), key=lambda entry: entry.name)
    if not offered:
        return best
    ranker: Reranker = offered[0].load()
    scores = ranker(question, [piece.text for piece in best])
    if len(scores) != len(best):
        raise InputError(f"the ranker {offered[0].name!r} scored {len(scores)} passages of {len(best)}; uninstall it")
    return [best[n] for n in sorted(range(len(best)), key=lambda n: -scores[n])]
