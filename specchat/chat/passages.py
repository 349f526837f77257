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

from specchat.chat.reference_corpus import words
from specchat.errors import InputError
from specchat.syntax import chunks, language_of

MOST_LINES = 40
MOST_RANKED = 200
PATH_WEIGHT = 3  # times that the words of a path count
RELEVANT = 0.25  # of the best score; less is chance
RANKERS = "specchat.rankers"
ENDING = re.compile(r"(?<=\w{4})(?:ied?|ing|ed|e|y)$")
DOUBLED = re.compile(r"(?<=\w\w)([bdgmnprst])\1$")
SEAM = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")  # where a name of code can be taken apart


@dataclass(frozen=True)
class Chunk:
    """Some lines of a file, counted from 1, the last one included."""

    file: str
    first: int
    last: int
    text: str

    @property
    def name(self) -> str:
        """As the model is shown it: "a.py lines 10-14"."""
        return f"{self.file} lines {self.first}-{self.last}"

    @property
    def source(self) -> str:
        """As a person cites it: "a.py:10-14"."""
        return f"{self.file}:{self.first}-{self.last}"


class Ranker(Protocol):
    """How well each passage answers a question; more is better, the scale is free. One number for each passage."""

    def __call__(self, question: str, passages: Sequence[str]) -> Sequence[float]: ...


def cut(file: str, text: str) -> list[Chunk]:
    """A text in pieces: definitions where its language is known, else what stands between blank lines."""
    pieces = chunks(text, language_of(file, text), MOST_LINES)
    return [Chunk(file, piece.first, piece.last, piece.text) for piece in pieces]


def terms(text: str) -> list[str]:
    """The stems of the words that a text is about, and of those that its names are made of."""
    return [_stem(word) for word in words(SEAM.sub(" ", text))]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    """What the forms of a word begin with: "verif" of "verified" and "verify", "commit" of "committed"."""
    return DOUBLED.sub(r"\1", ENDING.sub("", word))


def rank(pieces: Sequence[Chunk], question: str) -> list[Chunk]:
    """The pieces that a question is about, best first; none when no word of it stands anywhere."""
    asked = terms(question)
    held = [[*(terms(piece.file) * PATH_WEIGHT), *terms(piece.text)] for piece in pieces]
    if not any(set(asked).intersection(words) for words in held):
        return []
    import bm25s

    index = bm25s.BM25()
    index.index(held, show_progress=False)
    scores = index.get_scores(asked)
    least = RELEVANT * max(scores)
    order = sorted((n for n, score in enumerate(scores) if score > 0 and score >= least), key=lambda n: -scores[n])
    return _reranked([pieces[n] for n in order[:MOST_RANKED]], question)


def _reranked(best: list[Chunk], question: str) -> list[Chunk]:
    """In the order of the installed ranker, if there is one."""
    from importlib.metadata import entry_points

    offered = sorted(entry_points(group=RANKERS), key=lambda entry: entry.name)
    if not offered:
        return best
    ranker: Ranker = offered[0].load()
    scores = ranker(question, [piece.text for piece in best])
    if len(scores) != len(best):
        raise InputError(f"the ranker {offered[0].name!r} scored {len(scores)} passages of {len(best)}; uninstall it")
    return [best[n] for n in sorted(range(len(best)), key=lambda n: -scores[n])]
