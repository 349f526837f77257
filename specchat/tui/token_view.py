"""The widget of an inspected answer: each token in the style of its source, those of the selected step reversed.

Appending wraps the last line only, so a token costs the same at the end of a long answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content, Span
from textual.events import Click
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.style import Style

from specchat.chat.step_records import Inspection
from specchat.drawing.glyphs import Glyphs
from specchat.drawing.inspector_lines import token_text
from specchat.drawing.themes import TokenColours
from specchat.tui.streaming_answer import MAX_LINE_CHARS, Rows, RowsView

STEP = "step"  # in the meta data of a style: the step of a token
REVERSED = RichStyle(reverse=True)


class TokenRows(Rows):
    """Styled tokens in, rows of the screen out."""

    def add(self, tokens: Sequence[Content]) -> None:
        *ended, last = Content().join([self.open_line, *tokens]).split("\n", allow_blank=True)
        while len(last) > MAX_LINE_CHARS:
            ended.append(last[:MAX_LINE_CHARS])
            last = last[MAX_LINE_CHARS:]
        self.extend(ended, last)

    def first_row_of(self, step: int) -> int:
        """The first row with a token of this step or a later one, else the last row."""
        later = (number for number, row in enumerate(self.rows) if max(map(step_of, row.spans), default=-1) >= step)
        return next(later, len(self.rows) - 1)


def step_of(span: Span) -> int:
    """The step of a piece of a row; -1 for what is no token."""
    return span.style.meta.get(STEP, -1) if isinstance(span.style, Style) else -1


class TokenText(RowsView):
    def __init__(self, glyphs: Glyphs) -> None:
        self.token_rows = TokenRows()
        super().__init__(self.token_rows)
        self._glyphs, self._inspection, self._shown_count = glyphs, Inspection(), 0
        self.selected_step, self.shows_boundaries = 0, False

    def show(self, inspection: Inspection) -> None:
        """Draw all tokens, as another answer or in other colours."""
        self._inspection, self._shown_count = inspection, 0
        self._text = self.token_rows = TokenRows(self.token_rows.width)
        self._strip_cache.clear()
        self.show_new_tokens()

    def show_new_tokens(self) -> None:
        spans, first = self._inspection.spans, self._shown_count
        colours, sources = TokenColours.from_theme(self.app.theme_variables), self._inspection.sources
        style_of = cache(lambda kind, source: Style.from_rich_style(colours.kind_style(kind, source, sources)))
        tokens = list[Content]()
        for before, span in zip([None, *spans][first:], spans[first:], strict=False):
            if self.shows_boundaries and (before is None or span.step != before.step):
                tokens.append(Content.styled(self._glyphs.separator, "dim"))
            style = style_of(span.kind, span.source) + Style.from_meta({STEP: span.step})
            tokens.append(Content.styled(token_text(span, self._glyphs), style))
        self.token_rows.add(tokens)
        self._shown_count = len(spans)
        self.refresh(layout=True)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.show(self._inspection)

    def draw_row(self, y: int, width: int) -> Strip:
        return Strip([self._marked(segment) for segment in super().draw_row(y, width)])

    def _marked(self, segment: Segment) -> Segment:
        is_selected = segment.style and segment.style.meta.get(STEP, -1) == self.selected_step
        return Segment(segment.text, segment.style + REVERSED) if segment.style and is_selected else segment


class TokenView(VerticalScroll, can_focus=True):
    @dataclass
    class StepClicked(Message):
        """The user clicked a token of this step."""

        step: int

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="tokens")
        self.text = TokenText(glyphs)

    def compose(self) -> ComposeResult:
        yield self.text

    def show_inspection(self, inspection: Inspection) -> None:
        self.text.selected_step = 0
        self.text.show(inspection)
        self.scroll_to(0, 0, animate=False, immediate=True)

    def show_new_tokens(self) -> None:
        is_at_end = self.scroll_offset.y >= self.max_scroll_y
        self.text.show_new_tokens()
        if is_at_end:
            self.call_after_refresh(self.scroll_end, animate=False, immediate=True)

    def select_step(self, step: int, *, should_scroll: bool = True) -> None:
        self.text.selected_step = step
        self.text.redraw()
        if should_scroll:
            region = Region(0, self.text.token_rows.first_row_of(step), 1, 2)
            self.call_after_refresh(self.scroll_to_region, region, animate=False, immediate=True)

    def toggle_boundaries(self) -> None:
        self.text.shows_boundaries = not self.text.shows_boundaries
        self.text.notify_style_update()

    def on_click(self, event: Click) -> None:
        if STEP in event.style.meta:
            self.post_message(self.StepClicked(event.style.meta[STEP]))
