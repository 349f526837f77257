"""Breaks lines between words while a text streams, so that the edge of a terminal breaks none. Knows no stream."""

from __future__ import annotations

import re

END_OF_WORD = re.compile(r"(?<=\S)(?=\s)")


class WordWrap:
    """What is added comes back with line breaks; the last word comes when it is complete, or at the end.

    With 0 columns, nothing is broken or kept.
    """

    def __init__(self, columns: int) -> None:
        self._columns, self._column, self._last = columns, 0, ""

    def add(self, text: str) -> str:
        if not self._columns:
            return text
        *whole, self._last = END_OF_WORD.split(self._last + text)
        return "".join(map(self._place, whole))

    def end(self) -> str:
        """The last word."""
        last, self._last = self._place(self._last), ""
        return last

    def _place(self, word: str) -> str:
        """A word, and the blanks before it."""
        if "\n" not in word and 0 < self._column and self._column + len(word) > self._columns:
            word = f"\n{word.lstrip()}"
        self._column = len(word) - word.rindex("\n") - 1 if "\n" in word else self._column + len(word)
        return word


def wrapped(text: str, columns: int) -> str:
    wrap = WordWrap(columns)
    return wrap.add(text) + wrap.end()
