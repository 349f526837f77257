"""A finished answer as Markdown, each code block under a header. Imported late, because the parser imports slowly."""

from functools import partial

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from specchat.app.code_blocks import CodeBlock
from specchat.drawing.glyphs import Glyphs
from specchat.tui.code_block_header import CodeBlockHeader, HeaderText, block_title, header_texts


class CodeFence(MarkdownFence):
    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        super().__init__(markdown, token, code)
        assert isinstance(markdown, MarkdownAnswer)
        self._code_header = markdown.header_of(token)

    def compose(self) -> ComposeResult:
        yield self._code_header
        yield from super().compose()


class MarkdownAnswer(Markdown):
    """A finished answer. Links are shown, never opened."""

    def __init__(self, answer: str, glyphs: Glyphs, *, is_newest: bool) -> None:
        # Starts empty: an open code fence in the initial text would be misplaced by the update.
        chat_dialect = partial(MarkdownIt, "gfm-like", {"html": False})  # HTML stays visible text
        super().__init__("", parser_factory=chat_dialect, open_links=False)
        self.answer, self._glyphs, self._header_texts = answer, glyphs, header_texts(answer)
        self._is_newest = is_newest

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        return CodeFence if block_name == "fence" else super().get_block_class(block_name)

    def header_of(self, token: Token) -> CodeBlockHeader:
        """The header of the block that starts with this token; an open block shows its language only."""
        line = token.map[0] if token.map else -1
        header = self._header_texts.get(line) or HeaderText(block_title(CodeBlock(token.info.strip(), "")))
        return CodeBlockHeader(header, self._glyphs, is_newest=self._is_newest)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """A model must not open pages: show the address to the user."""
        event.stop()
        self.app.notify(event.href, title="link", markup=False)
