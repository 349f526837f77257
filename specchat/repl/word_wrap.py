"""Breaks lines between words while a text streams, so that the edge of a terminal breaks none."""

import re
import sys
from shutil import get_terminal_size
from typing import TextIO

END_OF_WORD = re.compile(r"(?<=\S)(?=\s)")


class WordWrap:
    """The last word comes when it is complete, or at the end. With 0 columns, nothing is broken or kept."""

    def __init__(self, columns: int, indent: str = "") -> None:
        self._columns, self._column, self._last, self._indent = columns, 0, "", indent

    def add(self, text: str, *, is_last: bool = False) -> str:
        """The part of the text that can be shown now."""
        if not self._columns:
            return text
        *words, self._last = END_OF_WORD.split(self._last + text)
        if is_last or self._last.endswith("\n"):
            words, self._last = [*words, self._last], ""
        return "".join(map(self._place, words))

    def _place(self, word: str) -> str:
        """A word, and the blanks before it."""
        if "\n" not in word and 0 < self._column and self._column + len(word) > self._columns:
            word = f"\n{self._indent}{word.lstrip()}"
        self._column = len(word) - word.rindex("\n") - 1 if "\n" in word else self._column + len(word)
        return word


def reading_columns(stream: TextIO | None = None) -> int:
    """Those of a terminal, 0 elsewhere; of stderr unless another stream is given."""
    return get_terminal_size().columns if (stream or sys.stderr).isatty() else 0


def wrapped(text: str, columns: int, indent: str = "") -> str:
    return WordWrap(columns, indent).add(text, is_last=True)
