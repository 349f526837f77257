"""Lays tokens out in rows: which piece of text is where, and which token it belongs to. Draws nothing.

Rows wrap between words. Appending changes the last row only, so a token costs the same at the end of a long answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.cells import cell_len

WORD_PATTERN = re.compile(r"\n|[^\S\n]+|\S+")
NO_TOKEN = -1


@dataclass(frozen=True)
class Piece:
    """A word, a space, or a part of one, and the index of its token."""

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
