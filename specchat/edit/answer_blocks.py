"""Which part of an answer is the new text: the code block that is most like the file; the rest is talk.

An answer without a block is the text as a whole, and so is one about a new file or a text that contains code fences
itself, unless one fence encloses everything. Whether the chosen text can be taken is decided by `answer_check.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from specchat.edit.source_text import Source
from specchat.edit.syntax_check import parses
from specchat.syntax.languages import LANGUAGES, language_of

ENCLOSING_FENCE = re.compile(r"\A\s*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<inside>.*?)\n?(?P=fence)[ \t]*\s*\Z", re.DOTALL)
FENCE_LINE = re.compile(r"^\s*(?:`{3,}|~{3,})", re.MULTILINE)
# a block that the model did not close ends with the answer
BLOCK = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)[^\n`]*\n(?P<inside>.*?)(?:^ {0,3}(?P=fence)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
WORD = re.compile(r"\w+")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a model must not control the terminal


@dataclass(frozen=True)
class ChosenText:
    """The text that may become the new one, and what the model says about it.

    `is_excerpt_likely`: it is one of several parts of the answer, so the model may mean only a part of the file.
    """

    text: str
    talk: str = ""
    is_fenced: bool = False

    @property
    def is_excerpt_likely(self) -> bool:
        """Whether the block may be only a part of the new text: the model also talks about it."""
        return self.is_fenced and bool(self.talk)


def choose_text(source: Source, answer: str) -> ChosenText:
    """The part of an answer to take.

    "Here it is:\\n```python\\nx = 2\\n```\\nDone." is "x = 2\\n" with the talk "Here it is:\\n\\nDone.".
    """
    if ENCLOSING_FENCE.match(source.text):
        return ChosenText(answer)
    is_whole_only = not source.text.strip() or FENCE_LINE.search(source.text)
    blocks = [] if is_whole_only else list(BLOCK.finditer(answer))
    enclosing = ENCLOSING_FENCE.match(answer)
    if enclosing and (len(blocks) < 2 or len(enclosing["fence"]) > len("```")):
        return ChosenText(enclosing["inside"], is_fenced=True)
    if not blocks:
        return ChosenText(answer)
    best = max(blocks, key=lambda block: _rank(source, block))
    return ChosenText(best["inside"], _talk_around(answer, best), is_fenced=True)


def word_overlap(old: str, new: str) -> float:
    """The share of the old words that the new text has, each as often."""
    old_words, new_words = (Counter(WORD.findall(text)) for text in (old, new))
    return (old_words & new_words).total() / old_words.total() if old_words else 0.0


def _rank(source: Source, block: re.Match[str]) -> tuple[bool, bool, float, float]:
    """Blocks that parse come first, then those that change something, then the one that is most like the file."""
    text = block["inside"]
    named = block["language"].lower()
    language = language_of(source.name, source.text) or (named if named in LANGUAGES else language_of(f"block.{named}"))
    is_broken = bool(parses(source.text, language)) and parses(text, language) is False
    old_lines, new_lines = ([line.strip() for line in each.split("\n") if line.strip()] for each in (source.text, text))
    similarity = SequenceMatcher(None, old_lines, new_lines, autojunk=False).ratio()
    return not is_broken, text.strip() != source.text.strip(), similarity, word_overlap(source.text, text)


def _talk_around(answer: str, block: re.Match[str]) -> str:
    """The answer without the block."""
    parts = (CONTROL_CHARACTERS.sub("", part).strip() for part in (answer[: block.start()], answer[block.end() :]))
    return "\n\n".join(part for part in parts if part)
