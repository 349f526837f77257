"""Text that grows: only the last line is wrapped again as text arrives, and only the visible rows are drawn.

An answer that is being generated is shown as received, without Markdown; code has its colours, and in the place of its
fences stands what its header will say.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from specchat.drawing.glyphs import printable

FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ ]*(?P<language>[\w+#.-]*)[^`]*\Z")
PARTIAL_FENCE = re.compile(r" {0,3}(`{1,2}\Z|(`{3,}|~{3,})[^`]*\Z)")  # of a line that may grow
UNNAMED, RULE = "code", "─" * 3  # above code
MAX_LINE_CHARS = 2048  # longer lines are cut

MAX_HIGHLIGHTED_CHARS = 400  # longer lines of code have no colours


@dataclass
class Rows:
    """Lines in, rows of the screen out; the rows before `final_row_count` change only with the width."""

    width: int = 80
    rows: list[Content] = field(default_factory=list[Content])
    final_row_count: int = 0
    lines: list[Content] = field(default_factory=list[Content])  # that have ended
    open_line: Content = field(default_factory=Content)  # the last line, which may grow
    hidden_line: re.Pattern[str] | None = None  # such a last line is not shown until it has ended

    def extend(self, ended: Sequence[Content], open_line: Content) -> None:
        """Add lines, the first of them in place of the open one."""
        del self.rows[self.final_row_count :]
        self.lines += ended
        self._append_rows(ended, open_line)

    def rewrap(self, width: int) -> None:
        self.width, self.rows = max(1, width), []
        self._append_rows(self.lines, self.open_line)

    def _append_rows(self, ended: Sequence[Content], open_line: Content) -> None:
        self.rows += [row for line in ended for row in (line.wrap(self.width) if line else [line])]
        self.final_row_count, self.open_line = len(self.rows), open_line
        is_hidden = self.hidden_line and self.hidden_line.match(open_line.plain)
        self.rows += open_line.wrap(self.width) if open_line and not is_hidden else ()


@dataclass
class WrappedText(Rows):
    """Text in pieces in, rows out."""

    _pending_return: str = ""
    _fence: str = ""
    _language: str | None = None  # None in prose

    def append(self, text: str) -> None:
        text = self._pending_return + text
        self._pending_return = "\r" if text.endswith("\r") else ""  # perhaps half of a \r\n
        *whole, last = (self.open_line.plain + printable(text.removesuffix("\r"))).split("\n")
        ended = [part for line in whole for part in self._finish_line(line)]
        while len(last) > MAX_LINE_CHARS:
            ended += self._finish_line(last[:MAX_LINE_CHARS])
            last = last[MAX_LINE_CHARS:]
        self.extend(ended, Content(last))

    def _finish_line(self, text: str) -> list[Content]:
        """The line in parts that are not too long."""
        language = self._language
        if self._track_fence(text) and self.hidden_line:
            return [Content("" if self._language is None else f"{self._language or UNNAMED} {RULE}")]
        parts = [text[offset : offset + MAX_LINE_CHARS] for offset in range(0, max(1, len(text)), MAX_LINE_CHARS)]
        is_code = language is not None and self._language is not None  # the fence itself is no code
        return [highlight_code(part, language or "") if is_code else Content(part) for part in parts]

    def _track_fence(self, text: str) -> bool:
        """Whether the line begins or ends a block of code."""
        match = FENCE.match(text)
        if match and not self._fence:
            self._fence, self._language = match["marks"], match["language"]
        elif match and match["marks"].startswith(self._fence) and not match["language"]:
            self._fence, self._language = "", None
        else:
            return False
        return True


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
    def __init__(self, *, shows_fences: bool) -> None:
        self.wrapped_text = WrappedText(hidden_line=None if shows_fences else PARTIAL_FENCE)
        super().__init__(self.wrapped_text)

    def append_text(self, text: str) -> None:
        """Append; the layout is updated only when a row is added."""
        before = len(self.wrapped_text.rows)
        self.wrapped_text.append(text)
        self.refresh(layout=len(self.wrapped_text.rows) != before)

    def set_text(self, text: str) -> None:
        self._text = self.wrapped_text = WrappedText(self.wrapped_text.width, hidden_line=self.wrapped_text.hidden_line)
        self.wrapped_text.append(text)
        self._strip_cache.clear()
        self.refresh(layout=True)


def highlight_code(code: str, language: str) -> Content:
    """A line of code with syntax colours; plain without a language."""
    if not language or not code.strip() or len(code) > MAX_HIGHLIGHTED_CHARS:
        return Content(code)
    from textual.highlight import highlight  # imports pygments, which the first frame does not need

    highlighted = highlight(code, language=language)
    return highlighted if highlighted.plain == code else Content(code)
