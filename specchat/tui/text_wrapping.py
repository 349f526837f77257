"""An answer while it is written, as lines that fit a width. Only the last line is ever laid out again.

Prose is wrapped at words; code between fences is folded at the edge, so that nothing of it hides. Whatever Markdown
makes of the text in the end, here it stands as it came. No widget and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from textual.content import Content

from specchat.tui.glyphs import visible

FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ ]*(?P<language>[\w+#.-]*)[^`]*\Z")
Heads = Mapping[int, Callable[[int], str]]  # lines of an answer, and what stands in their place at a width
LONGEST_LINE = 2048  # characters; more of them are laid out as several lines

Paint = Callable[[str, str], Content]


def plainly(code: str, _language: str) -> Content:
    """Code without colours."""
    return Content(code)


@dataclass(frozen=True)
class Line:
    """A line as it was written; `language` is None for prose, and the language of the fence it stands in for code."""

    text: str
    language: str | None = None


@dataclass
class Flow:
    """Text in pieces goes in, rows of the screen come out."""

    paint: Paint = plainly
    width: int = 80
    lines: list[Line] = field(default_factory=list[Line])
    rows: list[Content] = field(default_factory=list[Content])
    heads: Heads = field(default_factory=dict[int, Callable[[int], str]])
    settled: int = 0  # rows that will not change any more, unless the width does
    open: str = ""  # the last line, which may still grow
    _begins: list[int] = field(default_factory=list[int])  # the first row of every line
    _return: str = ""
    _fence: str = ""
    _language: str | None = None

    @property
    def text(self) -> str:
        """All of it, as it is shown: the lines that were too long are one again."""
        return "".join([*(line.text for line in self.lines), self.open, visible(self._return)])

    def add(self, text: str) -> None:
        """Let the text grow; returns when its rows are up to date."""
        text = self._return + text
        self._return = "\r" if text.endswith("\r") else ""  # the first half of a line end, perhaps
        *whole, self.open = (self.open + visible(text.removesuffix("\r"))).split("\n")
        del self.rows[self.settled :]
        for line in whole:
            self._settle(line, end="\n")
        while len(self.open) > LONGEST_LINE:
            cut, self.open = self.open[:LONGEST_LINE], self.open[LONGEST_LINE:]
            self._settle(cut, end="")
        if self.open:
            self.rows += self._laid_out(self.open, self._language, is_finished=False)

    def resize(self, width: int) -> None:
        """Lay everything out for another width."""
        self.width, self.rows, self._begins = max(1, width), [], []
        for line in self.lines:
            self._begins.append(len(self.rows))
            self.rows += self._laid_out(line.text.removesuffix("\n"), line.language, is_finished=True)
        self.settled = len(self.rows)
        if self.open:
            self.rows += self._laid_out(self.open, self._language, is_finished=False)
        self._show_heads()

    def head(self, heads: Heads) -> None:
        """Let something stand in the place of these lines; how many rows there are stays as it is."""
        self.heads = heads
        self._show_heads()

    def _show_heads(self) -> None:
        for number, row in self._whole_lines() if self.heads else ():
            if number in self.heads:
                self.rows[row] = Content(self.heads[number](self.width))

    def _whole_lines(self) -> Iterator[tuple[int, int]]:
        """Every line that takes one row: its number in the answer, and the row."""
        number = 0
        for line, row, following in zip(self.lines, self._begins, [*self._begins[1:], self.settled], strict=True):
            if following == row + 1:
                yield number, row
            number += line.text.endswith("\n")

    def _settle(self, text: str, end: str) -> None:
        language = self._language
        self._enter_or_leave(text)
        if self._language is None:
            language = None  # the fence itself is no code
        self.lines.append(Line(text + end, language))
        self._begins.append(self.settled)
        for at in range(0, max(1, len(text)), LONGEST_LINE):
            self.rows += self._laid_out(text[at : at + LONGEST_LINE], language, is_finished=True)
        self.settled = len(self.rows)

    def _enter_or_leave(self, text: str) -> None:
        found = FENCE.match(text)
        if not found:
            return
        if not self._fence:
            self._fence, self._language = found["marks"], found["language"]
        elif found["marks"].startswith(self._fence) and not found["language"]:
            self._fence, self._language = "", None

    def _laid_out(self, text: str, language: str | None, *, is_finished: bool) -> list[Content]:
        if language is None:
            return Content(text).wrap(self.width) if text else [Content("")]
        return (self.paint(text, language) if is_finished else Content(text)).fold(self.width)
