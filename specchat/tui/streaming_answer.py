"""The widget of an answer that is being written: draws rows of a `Flow`, and of those only the ones in sight."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from specchat.tui.text_wrapping import LineReplacements, WrappedText, no_highlight

MAX_HIGHLIGHTED_CHARS = 400  # characters; a longer line of code stays without colours


class StreamingAnswer(Widget):
    """Text that grows at its end."""

    DEFAULT_CSS = "Flowing { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.wrapped_text = WrappedText(highlight_code)
        self._strip_cache: dict[int, Strip] = {}  # rows that will not change any more

    def append_text(self, text: str) -> None:
        """Append; the layout is asked for only when a row is added."""
        before = len(self.wrapped_text.rows)
        self.wrapped_text.append(text)
        self.refresh(layout=len(self.wrapped_text.rows) != before)

    def replace_lines(self, replacements: LineReplacements) -> None:
        """Let something stand in the place of these lines."""
        self.wrapped_text.replace_lines(replacements)
        self._strip_cache.clear()
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there are rows at this width."""
        if width and width != self.wrapped_text.width:
            self.wrapped_text.rewrap(width)
            self._strip_cache.clear()
        return len(self.wrapped_text.rows)

    def notify_style_update(self) -> None:
        """Other colours: everything is drawn anew."""
        self._strip_cache.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        if not 0 <= y < len(self.wrapped_text.rows) or not width:
            return Strip.blank(width, self.rich_style)
        drawn = self._strip_cache.get(y)
        if drawn is None or drawn.cell_length != width:
            drawn = Visual.to_strips(self, self.wrapped_text.rows[y], width, 1, self.visual_style)[0]
            if y < self.wrapped_text.final_row_count:
                self._strip_cache[y] = drawn
        return drawn


def highlight_code(code: str, language: str) -> Content:
    """A line of code with colours; what nobody knows the language of stays plain."""
    if not language or not code.strip() or len(code) > MAX_HIGHLIGHTED_CHARS:
        return no_highlight(code, language)
    from textual.highlight import highlight  # brings pygments, which the first frame does not need

    painted = highlight(code, language=language)
    return painted if painted.plain == code else no_highlight(code, language)
