"""Chunks of files that make sense alone, ranked by a question. Knows no folder and no model.

A chunk is made of whole definitions that fit; longer ones are split at blank lines.

The ranking is BM25: a chunk scores for each word of the question that it contains, more for rare words. Identifiers are
split and words are stemmed, so "how are trees verified?" finds `verifyTree` and `verify_tree`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from specchat.chat.reference_corpus import content_words
from specchat.syntax import definitions, language_of

MAX_CHUNK_LINES = 40
MAX_RANKED = 200
PATH_TERM_WEIGHT = 3  # words of a path count this many times
MIN_RELATIVE_SCORE = 0.25  # of the best score; lower scores are noise
WORD_SUFFIX = re.compile(r"(?<=\w{4})(?:ied?|ing|ed|e|y)$")
DOUBLED_CONSONANT = re.compile(r"(?<=\w\w)([bdgmnprst])\1$")
IDENTIFIER_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")


@dataclass(frozen=True)
class FileChunk:
    """Some lines of a file, counted from 1, `last_line` included."""

    file: str
    first_line: int
    last_line: int
    text: str

    @property
    def name(self) -> str:
        """The name in the prompt: "a.py lines 10-14"."""
        return f"{self.file} lines {self.first_line}-{self.last_line}"

    @property
    def citation(self) -> str:
        """The name in a citation: "a.py:10-14"."""
        return f"{self.file}:{self.first_line}-{self.last_line}"


def split_file(file: str, text: str, max_lines: int = MAX_CHUNK_LINES) -> list[FileChunk]:
    """Pieces of at most `max_lines` lines that together are the text, without blank pieces."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # as tree-sitter counts them: a form feed ends none
    boundaries = _boundaries(text, language_of(file, text), len(lines))
    pieces = _merge_neighbours(_split_long(lines, boundaries, max_lines), max_lines)
    chunks = [FileChunk(file, first + 1, end, "".join(lines[first:end])) for first, end in pieces]
    return [chunk for chunk in chunks if chunk.text.strip()]


def _boundaries(text: str, language: str, count: int) -> list[int]:
    """The lines where a definition starts or has just ended, and both ends of the text; lines count from 0."""
    edges = {edge for each in definitions(text, language) for edge in (each.first_line - 1, each.last_line)}
    return sorted({0, count} | {edge for edge in edges if edge < count})


def _split_long(lines: list[str], boundaries: list[int], max_lines: int) -> Iterator[tuple[int, int]]:
    """The pieces between boundaries; a long one is split after a blank line, or after `max_lines` lines."""
    for start, end in pairwise(boundaries):
        first = start
        while end - first > max_lines:
            blank = (n for n in range(first + max_lines, first + max_lines // 2, -1) if not lines[n - 1].strip())
            middle = next(blank, first + max_lines)
            yield first, middle
            first = middle
        yield first, end


def _merge_neighbours(pieces: Iterator[tuple[int, int]], max_lines: int) -> Iterator[tuple[int, int]]:
    start, stop = 0, 0
    for first, end in pieces:
        if end - start > max_lines and stop > start:
            yield start, stop
            start = first
        stop = end
    if stop > start:
        yield start, stop


def terms(text: str) -> list[str]:
    """The stems of the content words of a text, with identifiers split into words."""
    return [_stem(word) for word in content_words(IDENTIFIER_BOUNDARY.sub(" ", text))]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    """The stem of a word: "verif" for "verified" and "verify", "commit" for "committed"."""
    return DOUBLED_CONSONANT.sub(r"\1", WORD_SUFFIX.sub("", word))


def rank_chunks(candidates: Sequence[FileChunk], question: str) -> list[FileChunk]:
    """The chunks that match a question, best first; none when no chunk contains a word of it."""
    query = terms(question)
    documents = [[*(terms(chunk.file) * PATH_TERM_WEIGHT), *terms(chunk.text)] for chunk in candidates]
    if not any(set(query).intersection(words) for words in documents):
        return []
    import bm25s

    index = bm25s.BM25()
    index.index(documents, show_progress=False)
    scores = index.get_scores(query)
    threshold = MIN_RELATIVE_SCORE * max(scores)
    order = sorted((n for n, score in enumerate(scores) if score > 0 and score >= threshold), key=lambda n: -scores[n])
    return [candidates[n] for n in order[:MAX_RANKED]]
