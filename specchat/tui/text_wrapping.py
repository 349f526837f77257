"""Wraps a growing answer to a width; only the last line is wrapped again.

Prose wraps at words; code in fences folds at the edge. The text is shown as received, without Markdown. No widget, no
clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from textual.content import Content

from specchat.tui.glyphs import printable

FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ ]*(?P<language>[\w+#.-]*)[^`]*\Z")
LineReplacements = Mapping[int, Callable[[int], str]]  # line number -> text for a width
MAX_LINE_CHARS = 2048  # longer lines are cut

Highlighter = Callable[[str, str], Content]


def no_highlight(code: str, _language: str) -> Content:
    return Content(code)


@dataclass(frozen=True)
class SourceLine:
    """A line of the answer; `language` is None for prose, and that of the fence for code."""

    text: str
    language: str | None = None


@dataclass
class WrappedText:
    """Text in pieces in, rows of the screen out."""

    highlight: Highlighter = no_highlight
    width: int = 80
    lines: list[SourceLine] = field(default_factory=list[SourceLine])
    rows: list[Content] = field(default_factory=list[Content])
    replacements: LineReplacements = field(default_factory=dict[int, Callable[[int], str]])
    final_row_count: int = 0  # rows that change only with the width
    open_line: str = ""  # the last line, which may grow
    _first_rows: list[int] = field(default_factory=list[int])  # the first row of every line
    _pending_return: str = ""
    _fence: str = ""
    _language: str | None = None

    @property
    def text(self) -> str:
        """The whole text as shown; lines that were cut are joined again."""
        return "".join([*(line.text for line in self.lines), self.open_line, printable(self._pending_return)])

    def append(self, text: str) -> None:
        text = self._pending_return + text
        self._pending_return = "\r" if text.endswith("\r") else ""  # perhaps half of a \r\n
        *whole, self.open_line = (self.open_line + printable(text.removesuffix("\r"))).split("\n")
        del self.rows[self.final_row_count :]
        for line in whole:
            self._finish_line(line, end="\n")
        while len(self.open_line) > MAX_LINE_CHARS:
            cut, self.open_line = self.open_line[:MAX_LINE_CHARS], self.open_line[MAX_LINE_CHARS:]
            self._finish_line(cut, end="")
        if self.open_line:
            self.rows += self._wrap_line(self.open_line, self._language, is_finished=False)

    def rewrap(self, width: int) -> None:
        self.width, self.rows, self._first_rows = max(1, width), [], []
        for line in self.lines:
            self._first_rows.append(len(self.rows))
            self.rows += self._wrap_line(line.text.removesuffix("\n"), line.language, is_finished=True)
        self.final_row_count = len(self.rows)
        if self.open_line:
            self.rows += self._wrap_line(self.open_line, self._language, is_finished=False)
        self._apply_replacements()

    def replace_lines(self, replacements: LineReplacements) -> None:
        """Show other text in place of these lines; the number of rows stays the same."""
        self.replacements = replacements
        self._apply_replacements()

    def _apply_replacements(self) -> None:
        for number, row in self._single_row_lines() if self.replacements else ():
            if number in self.replacements:
                self.rows[row] = Content(self.replacements[number](self.width))

    def _single_row_lines(self) -> Iterator[tuple[int, int]]:
        """The lines that take one row: number in the answer, and row."""
        number = 0
        for line, row, following in zip(
            self.lines, self._first_rows, [*self._first_rows[1:], self.final_row_count], strict=True
        ):
            if following == row + 1:
                yield number, row
            number += line.text.endswith("\n")

    def _finish_line(self, text: str, end: str) -> None:
        language = self._language
        self._track_fence(text)
        if self._language is None:
            language = None  # the fence itself is no code
        self.lines.append(SourceLine(text + end, language))
        self._first_rows.append(self.final_row_count)
        for offset in range(0, max(1, len(text)), MAX_LINE_CHARS):
            self.rows += self._wrap_line(text[offset : offset + MAX_LINE_CHARS], language, is_finished=True)
        self.final_row_count = len(self.rows)

    def _track_fence(self, text: str) -> None:
        match = FENCE.match(text)
        if not match:
            return
        if not self._fence:
            self._fence, self._language = match["marks"], match["language"]
        elif match["marks"].startswith(self._fence) and not match["language"]:
            self._fence, self._language = "", None

    def _wrap_line(self, text: str, language: str | None, *, is_finished: bool) -> list[Content]:
        if language is None:
            return Content(text).wrap(self.width) if text else [Content("")]
        return (self.highlight(text, language) if is_finished else Content(text)).fold(self.width)
