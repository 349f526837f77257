"""The widget of an inspected answer: each token in the style of its source. Draws visible rows only.

Rows wrap between words. Appending changes the last row only, so a token costs the same at the end of a long answer.
"""

import re
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from specchat.chat.step_records import Inspection
from specchat.drawing.glyphs import Glyphs
from specchat.drawing.inspector_lines import token_text
from specchat.drawing.themes import TokenColours

WORD_PATTERN = re.compile(r"\n|[^\S\n]+|\S+")
NO_TOKEN = -1


@dataclass(frozen=True)
class Piece:
    text: str
    token_index: int
    cells: int

    @property
    def is_space(self) -> bool:
        """Whether a row may end here."""
        return self.text.isspace()


class TokenRows:
    def __init__(self, width: int) -> None:
        self.width = max(1, width)
        self.rows: list[list[Piece]] = [[]]
        self._used_cells = 0  # cells of the last row

    def add(self, text: str, token: int) -> None:
        for word in WORD_PATTERN.findall(text):
            if word == "\n":
                self._start_row()
            else:
                self._append_piece(Piece(word, token, cell_len(word)))

    def row_of(self, token: int, first_row: int = 0) -> int:
        """The first row with this token, else the last row."""
        for number in range(first_row, len(self.rows)):
            if any(piece.token_index >= token for piece in self.rows[number]):
                return number
        return len(self.rows) - 1

    def token_at(self, row: int, column: int) -> int:
        """The token at this position, NO_TOKEN if none."""
        for piece in self.rows[row] if 0 <= row < len(self.rows) else ():
            if column < piece.cells:
                return piece.token_index
            column -= piece.cells
        return NO_TOKEN

    def _append_piece(self, piece: Piece) -> None:
        if self._used_cells + piece.cells > self.width and self._used_cells and not piece.is_space:
            self._move_word_to_next_row()
        for part in _split_piece(piece, self.width - self._used_cells, self.width):
            if self._used_cells + part.cells > self.width and self._used_cells and not part.is_space:
                self._start_row()
            self.rows[-1].append(part)
            self._used_cells += part.cells

    def _move_word_to_next_row(self) -> None:
        """Move the start of a word to the next row, unless the row holds only that word."""
        row = self.rows[-1]
        start = next((index + 1 for index in range(len(row) - 1, -1, -1) if row[index].is_space), 0)
        if not start:
            return
        word = row[start:]
        del row[start:]
        self._start_row()
        self.rows[-1] += word
        self._used_cells = sum(piece.cells for piece in word)

    def _start_row(self) -> None:
        self.rows.append([])
        self._used_cells = 0


def _split_piece(piece: Piece, free_cells: int, width: int) -> list[Piece]:
    """Split a word that is wider than a row; the first part fills the current row."""
    if piece.is_space or piece.cells <= width:
        return [piece]
    parts, text = list[str](), ""
    for character in piece.text:
        if text and cell_len(text + character) > (width if parts else max(1, free_cells)):
            parts.append(text)
            text = ""
        text += character
    return [Piece(part, piece.token_index, cell_len(part)) for part in [*parts, text]]


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
