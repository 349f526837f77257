"""What stands above a block of code: its language and file, a thin rule, and what can be done with it.

`c` copies the last block of any answer; `/apply` writes one of the newest. A click copies the block under the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.message import Message
from textual.widgets import Static

from specchat.commands.code_blocks import CodeBlock, find_code_blocks
from specchat.tui.glyphs import Glyphs

UNNAMED = "code"
MIN_RULE_COLUMNS = 2


@dataclass(frozen=True)
class HeaderText:
    """One head: what the block is, the fence as it was written, and what can be typed."""

    title: str
    fence: str
    code: str = ""
    copy_hint: str = ""
    apply_hint: str = ""

    @classmethod
    def from_info(cls, info: str) -> HeaderText:
        """Of a block that was not closed: nothing can be done with it."""
        return cls(_title(CodeBlock(info.strip(), "")), "")

    def to_line(self, width: int, glyphs: Glyphs, *, is_newest: bool, is_fence: bool = False) -> str:
        """For example: python src/a.py ────── c copy · /apply.

        It fills the width. What has no room is left out, the last first. `is_fence` begins it with the fence itself.
        """
        title = self.fence if is_fence else self.title
        keys = [key for key in (self.copy_hint, self.apply_hint if is_newest else "") if key]
        for count in range(len(keys), 0, -1):
            said = f" {glyphs.dot} ".join(keys[:count])
            rule = width - cell_len(title) - cell_len(said) - 2
            if rule >= MIN_RULE_COLUMNS:
                return f"{title} {glyphs.rule * rule} {said}"
        rule = width - cell_len(title) - 1
        return f"{title} {glyphs.rule * rule}" if rule > 0 else set_cell_size(title, width)


def header_texts(answer: str) -> dict[int, HeaderText]:
    """The head of every block that was closed, by the line of the answer that it begins in."""
    found, lines = find_code_blocks(answer), answer.split("\n")
    return {
        block.first_line: HeaderText(
            _title(block),
            lines[block.first_line].rstrip(),
            block.text,
            *_hints(block, number, is_last=number == len(found)),
        )
        for number, block in enumerate(found, start=1)
    }


def _hints(block: CodeBlock, number: int, *, is_last: bool) -> Sequence[str]:
    """What copies it, and what writes it; the last block needs no number."""
    words = ["/apply", *([] if is_last else [str(number)]), *([] if block.file else ["FILE"])]
    return "c copy" if is_last else "", " ".join(words)


def _title(block: CodeBlock) -> str:
    return " ".join(filter(None, [block.language, block.file])) or UNNAMED


class CodeBlockHeader(Static):
    """A head on the screen, as wide as its place."""

    ALLOW_SELECT = False  # who selects code wants nothing else

    @dataclass
    class Clicked(Message):
        """This code is to be copied."""

        code: str

    def __init__(self, header_text: HeaderText, glyphs: Glyphs, *, is_newest: bool) -> None:
        super().__init__(markup=False)
        self._header_text, self._glyphs, self._is_newest = header_text, glyphs, is_newest
        if header_text.code:
            self.tooltip = "a click copies this block"

    def set_newest(self, *, is_newest: bool) -> None:
        """Is its answer the newest?"""
        self._is_newest = is_newest
        self._draw()

    def on_resize(self) -> None:
        """Another width."""
        self._draw()

    def on_click(self) -> None:
        """Copy."""
        if self._header_text.code:
            self.post_message(self.Clicked(self._header_text.code))

    def _draw(self) -> None:
        width = self.content_size.width
        self.update(self._header_text.to_line(width, self._glyphs, is_newest=self._is_newest) if width else "")
