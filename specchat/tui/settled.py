"""A finished answer as Markdown. Apart from the rest, for it brings a parser that the first frame does not need."""

from __future__ import annotations

from markdown_it import MarkdownIt
from textual.widgets import Markdown


def answer_parser() -> MarkdownIt:
    """Markdown as chats write it; HTML is text like any other and never vanishes."""
    return MarkdownIt("gfm-like", {"html": False})


class Settled(Markdown):
    """A finished answer. Links are shown to the person and not opened."""

    def __init__(self) -> None:
        # Begun empty: an open code fence in the first text would lose its place with what is appended later.
        super().__init__("", parser_factory=answer_parser, open_links=False)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """A model must not send anyone anywhere: the address is shown, the person decides."""
        event.stop()
        self.app.notify(event.href, title="link", markup=False)
