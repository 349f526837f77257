"""A finished answer as Markdown, every block of code under a head. Apart from the rest, for it brings a parser that the
first frame does not need.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from specchat.tui.code_block_header import CodeBlockHeader, HeaderText, header_texts
from specchat.tui.glyphs import Glyphs


def answer_parser() -> MarkdownIt:
    """Markdown as chats write it; HTML is text like any other and never vanishes."""
    return MarkdownIt("gfm-like", {"html": False})


class CodeFence(MarkdownFence):
    """A block of code under its head."""

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        super().__init__(markdown, token, code)
        assert isinstance(markdown, MarkdownAnswer)
        self._code_header = markdown.header_of(token)

    def compose(self) -> ComposeResult:
        """The head, the code."""
        yield self._code_header
        yield from super().compose()


class MarkdownAnswer(Markdown):
    """A finished answer. Links are shown to the person and not opened."""

    def __init__(self, answer: str, glyphs: Glyphs, *, is_newest: bool) -> None:
        # Begun empty: an open code fence in the first text would lose its place with what is appended later.
        super().__init__("", parser_factory=answer_parser, open_links=False)
        self.answer, self._glyphs, self._header_texts = answer, glyphs, header_texts(answer)
        self._is_newest = is_newest

    async def show_markdown(self) -> None:
        """Make widgets of it."""
        await self.update(self.answer)

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        """Code that stands between fences is ours."""
        return CodeFence if block_name == "fence" else super().get_block_class(block_name)

    def header_of(self, token: Token) -> CodeBlockHeader:
        """What stands above the block that begins with this token; of one that was not closed, its language alone."""
        line = token.map[0] if token.map else -1
        heading = self._header_texts.get(line) or HeaderText.from_info(token.info)
        return CodeBlockHeader(heading, self._glyphs, is_newest=self._is_newest)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """A model must not send anyone anywhere: the address is shown, the person decides."""
        event.stop()
        self.app.notify(event.href, title="link", markup=False)
