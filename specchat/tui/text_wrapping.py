"""An answer while it is written, as lines that fit a width. Only the last line is ever laid out again.

Prose is wrapped at words; code between fences is folded at the edge, so that nothing of it hides. Whatever Markdown
makes of the text in the end, here it stands as it came. No widget and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from textual.content import Content

from specchat.tui.glyphs import printable

FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ ]*(?P<language>[\w+#.-]*)[^`]*\Z")
LineReplacements = Mapping[int, Callable[[int], str]]  # lines of an answer, and what stands in their place at a width
MAX_LINE_CHARS = 2048  # characters; more of them are laid out as several lines

Highlighter = Callable[[str, str], Content]


def no_highlight(code: str, _language: str) -> Content:
    """Code without colours."""
    return Content(code)


@dataclass(frozen=True)
class SourceLine:
    """A line as it was written; `language` is None for prose, and the language of the fence it stands in for code."""

    text: str
    language: str | None = None


@dataclass
class WrappedText:
    """Text in pieces goes in, rows of the screen come out."""

    highlight: Highlighter = no_highlight
    width: int = 80
    lines: list[SourceLine] = field(default_factory=list[SourceLine])
    rows: list[Content] = field(default_factory=list[Content])
    replacements: LineReplacements = field(default_factory=dict[int, Callable[[int], str]])
    final_row_count: int = 0  # rows that will not change any more, unless the width does
    open_line: str = ""  # the last line, which may still grow
    _first_rows: list[int] = field(default_factory=list[int])  # the first row of every line
    _pending_return: str = ""
    _fence: str = ""
    _language: str | None = None

    @property
    def text(self) -> str:
        """All of it, as it is shown: the lines that were too long are one again."""
        return "".join([*(line.text for line in self.lines), self.open_line, printable(self._pending_return)])

    def append(self, text: str) -> None:
        """Let the text grow; returns when its rows are up to date."""
        text = self._pending_return + text
        self._pending_return = "\r" if text.endswith("\r") else ""  # the first half of a line end, perhaps
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
        """Lay everything out for another width."""
        self.width, self.rows, self._first_rows = max(1, width), [], []
        for line in self.lines:
            self._first_rows.append(len(self.rows))
            self.rows += self._wrap_line(line.text.removesuffix("\n"), line.language, is_finished=True)
        self.final_row_count = len(self.rows)
        if self.open_line:
            self.rows += self._wrap_line(self.open_line, self._language, is_finished=False)
        self._apply_replacements()

    def replace_lines(self, replacements: LineReplacements) -> None:
        """Let something stand in the place of these lines; how many rows there are stays as it is."""
        self.replacements = replacements
        self._apply_replacements()

    def _apply_replacements(self) -> None:
        for number, row in self._single_row_lines() if self.replacements else ():
            if number in self.replacements:
                self.rows[row] = Content(self.replacements[number](self.width))

    def _single_row_lines(self) -> Iterator[tuple[int, int]]:
        """Every line that takes one row: its number in the answer, and the row."""
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
        for at in range(0, max(1, len(text)), MAX_LINE_CHARS):
            self.rows += self._wrap_line(text[at : at + MAX_LINE_CHARS], language, is_finished=True)
        self.final_row_count = len(self.rows)

    def _track_fence(self, text: str) -> None:
        found = FENCE.match(text)
        if not found:
            return
        if not self._fence:
            self._fence, self._language = found["marks"], found["language"]
        elif found["marks"].startswith(self._fence) and not found["language"]:
            self._fence, self._language = "", None

    def _wrap_line(self, text: str, language: str | None, *, is_finished: bool) -> list[Content]:
        if language is None:
            return Content(text).wrap(self.width) if text else [Content("")]
        return (self.highlight(text, language) if is_finished else Content(text)).fold(self.width)
