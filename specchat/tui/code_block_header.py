"""The header above a code block: language and file, a thin rule, and the available commands.

`c` copies the last block of any answer; `/apply` writes a block of the newest answer. A click copies the block below.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.widgets import Static

from specchat.app.code_blocks import CodeBlock, find_code_blocks
from specchat.drawing.glyphs import Glyphs
from specchat.tui.clipboard import copy
from specchat.tui.streaming_answer import UNNAMED

MIN_RULE_COLUMNS = 2


@dataclass(frozen=True)
class HeaderText:
    """The title and the hints of a header. That of a block that was not closed has neither code nor hints."""

    title: str
    code: str = ""
    copy_hint: str = ""
    apply_hint: str = ""

    def to_line(self, width: int, glyphs: Glyphs, *, is_newest: bool) -> str:
        """For example: python src/a.py ────── c copy · /apply.

        It fills the width; hints that do not fit are dropped, the last first.
        """
        title = self.title
        hints = [key for key in (self.copy_hint, self.apply_hint if is_newest else "") if key]
        for count in range(len(hints), 0, -1):
            shown = f" {glyphs.dot} ".join(hints[:count])
            rule = width - cell_len(title) - cell_len(shown) - 2
            if rule >= MIN_RULE_COLUMNS:
                return f"{title} {glyphs.rule * rule} {shown}"
        rule = width - cell_len(title) - 1
        return f"{title} {glyphs.rule * rule}" if rule > 0 else set_cell_size(title, width)


def header_texts(answer: str) -> dict[int, HeaderText]:
    """The header of every closed block, by the line of the answer where it starts."""
    blocks = find_code_blocks(answer)
    return {
        block.first_line: HeaderText(
            block_title(block), block.text, *_hints(block, number, is_last=number == len(blocks))
        )
        for number, block in enumerate(blocks, start=1)
    }


def _hints(block: CodeBlock, number: int, *, is_last: bool) -> Sequence[str]:
    """The commands that copy and write the block; the last block needs no number."""
    words = ["/apply", *([] if is_last else [str(number)]), *([] if block.file else ["FILE"])]
    return "c copy" if is_last else "", " ".join(words)


def block_title(block: CodeBlock) -> str:
    return " ".join(filter(None, [block.language, block.file])) or UNNAMED


class CodeBlockHeader(Static):
    ALLOW_SELECT = False  # a selection of code must not include the header

    def __init__(self, header_text: HeaderText, glyphs: Glyphs, *, is_newest: bool) -> None:
        super().__init__(markup=False)
        self._header_text, self._glyphs, self._is_newest = header_text, glyphs, is_newest
        if header_text.code:
            self.tooltip = "click to copy this block"

    def set_newest(self, *, is_newest: bool) -> None:
        self._is_newest = is_newest
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self) -> None:
        if self._header_text.code:
            copy(self.app, self._header_text.code)

    def _draw(self) -> None:
        width = self.content_size.width
        self.update(self._header_text.to_line(width, self._glyphs, is_newest=self._is_newest) if width else "")
