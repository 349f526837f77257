"""The widget of an inspected answer: every token in the look of who guessed it. Draws rows in sight and no other."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from specchat.chat.step_records import Inspection
from specchat.tui.glyphs import Glyphs
from specchat.tui.inspector_lines import spelt
from specchat.tui.token_colours import TokenColours
from specchat.tui.token_rows import NOBODY, TokenRows


class TokenView(ScrollView, can_focus=True):
    """Tokens in rows; one step is marked."""

    @dataclass
    class Pointed(Message):
        """Somebody clicked on a token of this step."""

        step: int

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="tokens")
        self._glyphs = glyphs
        self.inspection = Inspection()
        self._laid = TokenRows(1)
        self._shown = 0  # tokens that are laid out
        self._drawn: dict[int, Strip] = {}  # rows that will not change any more
        self._colours: TokenColours | None = None
        self.marked = 0
        self.has_bounds = False

    def show(self, inspection: Inspection) -> None:
        """Another answer."""
        self.inspection, self.marked = inspection, 0
        self._lay_out()
        self.scroll_to(0, 0, animate=False, immediate=True)

    def grow(self) -> None:
        """The answer has more tokens than before."""
        at_end = self.scroll_offset.y >= self.max_scroll_y
        self._drawn.pop(len(self._laid.rows) - 1, None)
        self._append()
        if at_end:
            self.scroll_end(animate=False, immediate=True)

    def mark(self, step: int, *, goes_there: bool = True) -> None:
        """Mark the tokens of a step, and bring them into sight."""
        self.marked = step
        self._drawn.clear()
        first = next((place for place, span in enumerate(self.inspection.spans) if span.step >= step), None)
        if goes_there and first is not None:
            row = self._laid.row_of(first)
            self.scroll_to_region(Region(0, row, 1, 2), animate=False, immediate=True)
        self.refresh()

    def toggle_bounds(self) -> None:
        """Show where steps begin, or hide it."""
        self.has_bounds = not self.has_bounds
        self._lay_out()

    def on_resize(self) -> None:
        """Another width."""
        if self._laid.width != self._columns:
            self._lay_out()

    def notify_style_update(self) -> None:
        """Other colours."""
        self._colours = None
        self._drawn.clear()
        super().notify_style_update()

    def on_click(self, event: Click) -> None:
        """Mark the step of what was clicked."""
        place = event.get_content_offset(self)
        if place is None:
            return
        token = self._laid.token_at(place.y + self.scroll_offset.y, place.x)
        if token != NOBODY:
            self.post_message(self.Pointed(self.inspection.spans[token].step))

    def render_line(self, y: int) -> Strip:
        """One row."""
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if not 0 <= number < len(self._laid.rows):
            return Strip.blank(width, self.rich_style)
        drawn = self._drawn.get(number)
        if drawn is None:
            drawn = self._draw(number).crop_extend(0, width, self.rich_style)
            self._drawn[number] = drawn
        return drawn

    @property
    def _columns(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def _draw(self, number: int) -> Strip:
        base, sources = self.rich_style, self.inspection.sources
        colours = self._colours = self._colours or TokenColours.of_theme(self.app.theme_variables)
        segments = list[Segment]()
        for piece in self._laid.rows[number]:
            look = Style(dim=True)
            if piece.token != NOBODY:
                span = self.inspection.spans[piece.token]
                look = colours.of_span(span, sources) + Style(reverse=span.step == self.marked)
            segments.append(Segment(piece.text, base + look))
        return Strip(segments)

    def _lay_out(self) -> None:
        self._laid, self._shown = TokenRows(self._columns), 0
        self._drawn.clear()
        self._append()

    def _append(self) -> None:
        spans = self.inspection.spans
        for place in range(self._shown, len(spans)):
            if self.has_bounds and (place == 0 or spans[place].step != spans[place - 1].step):
                self._laid.add(self._glyphs.bar, NOBODY)
            self._laid.add(spelt(spans[place], self._glyphs), place)
        self._shown = len(spans)
        self.virtual_size = Size(self._columns, len(self._laid.rows))
        self.refresh()
