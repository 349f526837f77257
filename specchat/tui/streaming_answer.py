"""An answer that is being generated: draws the visible rows, and wraps only the last line again as text arrives.

Prose wraps at words; code in fences folds at the edge. The text is shown as received, without Markdown.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from specchat.drawing.glyphs import printable

FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ ]*(?P<language>[\w+#.-]*)[^`]*\Z")
MAX_LINE_CHARS = 2048  # longer lines are cut

Highlighter = Callable[[str, str], Content]
MAX_HIGHLIGHTED_CHARS = 400  # longer lines of code have no colours


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
    final_row_count: int = 0  # rows that change only with the width
    open_line: str = ""  # the last line, which may grow
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
        self.width, self.rows = max(1, width), []
        for line in self.lines:
            self.rows += self._wrap_line(line.text.removesuffix("\n"), line.language, is_finished=True)
        self.final_row_count = len(self.rows)
        if self.open_line:
            self.rows += self._wrap_line(self.open_line, self._language, is_finished=False)

    def _finish_line(self, text: str, end: str) -> None:
        language = self._language
        self._track_fence(text)
        if self._language is None:
            language = None  # the fence itself is no code
        self.lines.append(SourceLine(text + end, language))
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


class Rows(Protocol):
    """A text as rows for a width; the rows before `final_row_count` change only with the width."""

    width: int
    rows: list[Content]
    final_row_count: int

    def rewrap(self, width: int) -> None: ...


class RowsView(Widget):
    """Draws the visible rows of a text, those that are final once."""

    DEFAULT_CSS = "RowsView { height: auto; width: 1fr; }"

    def __init__(self, text: Rows) -> None:
        super().__init__()
        self._text = text
        self._strip_cache: dict[int, Strip] = {}  # of final rows

    def redraw(self) -> None:
        """Other text in the same rows."""
        self._strip_cache.clear()
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width and width != self._text.width:
            self._text.rewrap(width)
            self._strip_cache.clear()
        return len(self._text.rows)

    def notify_style_update(self) -> None:
        self._strip_cache.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if not 0 <= y < len(self._text.rows) or not width:
            return Strip.blank(width, self.rich_style)
        strip = self._strip_cache.get(y)
        if strip is None or strip.cell_length != width:
            strip = self.draw_row(y, width)
            if y < self._text.final_row_count:
                self._strip_cache[y] = strip
        return strip

    def draw_row(self, y: int, width: int) -> Strip:
        return Visual.to_strips(self, self._text.rows[y], width, 1, self.visual_style)[0]


class StreamingAnswer(RowsView):
    def __init__(self) -> None:
        self.wrapped_text = WrappedText(highlight_code)
        super().__init__(self.wrapped_text)

    def append_text(self, text: str) -> None:
        """Append; the layout is updated only when a row is added."""
        before = len(self.wrapped_text.rows)
        self.wrapped_text.append(text)
        self.refresh(layout=len(self.wrapped_text.rows) != before)

    def set_text(self, text: str) -> None:
        self._text = self.wrapped_text = WrappedText(highlight_code, self.wrapped_text.width)
        self.wrapped_text.append(text)
        self._strip_cache.clear()
        self.refresh(layout=True)


def highlight_code(code: str, language: str) -> Content:
    """A line of code with syntax colours; plain without a language."""
    if not language or not code.strip() or len(code) > MAX_HIGHLIGHTED_CHARS:
        return no_highlight(code, language)
    from textual.highlight import highlight  # imports pygments, which the first frame does not need

    highlighted = highlight(code, language=language)
    return highlighted if highlighted.plain == code else no_highlight(code, language)
