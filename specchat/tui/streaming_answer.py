"""The widget of an answer that is being written: draws rows of a `Flow`, and of those only the ones in sight."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from specchat.tui.text_wrapping import Flow, Heads, plainly

PAINTED_LINE = 400  # characters; a longer line of code stays without colours


class Flowing(Widget):
    """Text that grows at its end."""

    DEFAULT_CSS = "Flowing { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.flow = Flow(paint)
        self._drawn: dict[int, Strip] = {}  # rows that will not change any more

    def write(self, text: str) -> None:
        """Append; the layout is asked for only when a row is added."""
        before = len(self.flow.rows)
        self.flow.add(text)
        self.refresh(layout=len(self.flow.rows) != before)

    def head(self, heads: Heads) -> None:
        """Let something stand in the place of these lines."""
        self.flow.head(heads)
        self._drawn.clear()
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there are rows at this width."""
        if width and width != self.flow.width:
            self.flow.resize(width)
            self._drawn.clear()
        return len(self.flow.rows)

    def notify_style_update(self) -> None:
        """Other colours: everything is drawn anew."""
        self._drawn.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        if not 0 <= y < len(self.flow.rows) or not width:
            return Strip.blank(width, self.rich_style)
        drawn = self._drawn.get(y)
        if drawn is None or drawn.cell_length != width:
            drawn = Visual.to_strips(self, self.flow.rows[y], width, 1, self.visual_style)[0]
            if y < self.flow.settled:
                self._drawn[y] = drawn
        return drawn


def paint(code: str, language: str) -> Content:
    """A line of code with colours; what nobody knows the language of stays plain."""
    if not language or not code.strip() or len(code) > PAINTED_LINE:
        return plainly(code, language)
    from textual.highlight import highlight  # brings pygments, which the first frame does not need

    painted = highlight(code, language=language)
    return painted if painted.plain == code else plainly(code, language)
