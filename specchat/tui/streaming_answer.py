"""The widget of an answer that is being generated: draws the visible rows of a `WrappedText`."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from specchat.tui.text_wrapping import LineReplacements, WrappedText, no_highlight

MAX_HIGHLIGHTED_CHARS = 400  # longer lines of code have no colours


class StreamingAnswer(Widget):
    DEFAULT_CSS = "StreamingAnswer { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.wrapped_text = WrappedText(highlight_code)
        self._strip_cache: dict[int, Strip] = {}  # of final rows

    def append_text(self, text: str) -> None:
        """Append; the layout is updated only when a row is added."""
        before = len(self.wrapped_text.rows)
        self.wrapped_text.append(text)
        self.refresh(layout=len(self.wrapped_text.rows) != before)

    def replace_lines(self, replacements: LineReplacements) -> None:
        self.wrapped_text.replace_lines(replacements)
        self._strip_cache.clear()
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width and width != self.wrapped_text.width:
            self.wrapped_text.rewrap(width)
            self._strip_cache.clear()
        return len(self.wrapped_text.rows)

    def notify_style_update(self) -> None:
        self._strip_cache.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if not 0 <= y < len(self.wrapped_text.rows) or not width:
            return Strip.blank(width, self.rich_style)
        strip = self._strip_cache.get(y)
        if strip is None or strip.cell_length != width:
            strip = Visual.to_strips(self, self.wrapped_text.rows[y], width, 1, self.visual_style)[0]
            if y < self.wrapped_text.final_row_count:
                self._strip_cache[y] = strip
        return strip


def highlight_code(code: str, language: str) -> Content:
    """A line of code with syntax colours; plain without a language."""
    if not language or not code.strip() or len(code) > MAX_HIGHLIGHTED_CHARS:
        return no_highlight(code, language)
    from textual.highlight import highlight  # imports pygments, which the first frame does not need

    highlighted = highlight(code, language=language)
    return highlighted if highlighted.plain == code else no_highlight(code, language)
