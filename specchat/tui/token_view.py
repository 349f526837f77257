"""The widget of an inspected answer: each token in the style of its source. Draws visible rows only."""

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
from specchat.tui.inspector_lines import token_text
from specchat.tui.token_colours import TokenColours
from specchat.tui.token_rows import NO_TOKEN, TokenRows


class TokenView(ScrollView, can_focus=True):
    @dataclass
    class StepClicked(Message):
        """The user clicked a token of this step."""

        step: int

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="tokens")
        self._glyphs = glyphs
        self.inspection = Inspection()
        self._token_rows = TokenRows(1)
        self._wrapped_count = 0
        self._strip_cache: dict[int, Strip] = {}  # by row number
        self._colours: TokenColours | None = None
        self.selected_step = 0
        self.shows_boundaries = False

    def show_inspection(self, inspection: Inspection) -> None:
        self.inspection, self.selected_step = inspection, 0
        self._lay_out()
        self.scroll_to(0, 0, animate=False, immediate=True)

    def show_new_tokens(self) -> None:
        at_end = self.scroll_offset.y >= self.max_scroll_y
        self._strip_cache.pop(len(self._token_rows.rows) - 1, None)
        self._append_tokens()
        if at_end:
            self.scroll_end(animate=False, immediate=True)

    def select_step(self, step: int, *, should_scroll: bool = True) -> None:
        self.selected_step = step
        self._strip_cache.clear()
        first = next((index for index, span in enumerate(self.inspection.spans) if span.step >= step), None)
        if should_scroll and first is not None:
            row = self._token_rows.row_of(first)
            self.scroll_to_region(Region(0, row, 1, 2), animate=False, immediate=True)
        self.refresh()

    def toggle_boundaries(self) -> None:
        self.shows_boundaries = not self.shows_boundaries
        self._lay_out()

    def on_resize(self) -> None:
        if self._token_rows.width != self._column_count:
            self._lay_out()

    def notify_style_update(self) -> None:
        self._colours = None
        self._strip_cache.clear()
        super().notify_style_update()

    def on_click(self, event: Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        token = self._token_rows.token_at(offset.y + self.scroll_offset.y, offset.x)
        if token != NO_TOKEN:
            self.post_message(self.StepClicked(self.inspection.spans[token].step))

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if not 0 <= number < len(self._token_rows.rows):
            return Strip.blank(width, self.rich_style)
        strip = self._strip_cache.get(number)
        if strip is None:
            strip = self._draw_row(number).crop_extend(0, width, self.rich_style)
            self._strip_cache[number] = strip
        return strip

    @property
    def _column_count(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def _draw_row(self, number: int) -> Strip:
        base, sources = self.rich_style, self.inspection.sources
        colours = self._colours = self._colours or TokenColours.from_theme(self.app.theme_variables)
        segments = list[Segment]()
        for piece in self._token_rows.rows[number]:
            style = Style(dim=True)
            if piece.token_index != NO_TOKEN:
                span = self.inspection.spans[piece.token_index]
                style = colours.span_style(span, sources) + Style(reverse=span.step == self.selected_step)
            segments.append(Segment(piece.text, base + style))
        return Strip(segments)

    def _lay_out(self) -> None:
        self._token_rows, self._wrapped_count = TokenRows(self._column_count), 0
        self._strip_cache.clear()
        self._append_tokens()

    def _append_tokens(self) -> None:
        spans = self.inspection.spans
        for index in range(self._wrapped_count, len(spans)):
            if self.shows_boundaries and (index == 0 or spans[index].step != spans[index - 1].step):
                self._token_rows.add(self._glyphs.separator, NO_TOKEN)
            self._token_rows.add(token_text(spans[index], self._glyphs), index)
        self._wrapped_count = len(spans)
        self.virtual_size = Size(self._column_count, len(self._token_rows.rows))
        self.refresh()
