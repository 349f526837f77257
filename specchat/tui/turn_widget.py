"""A question, its answer, and the line that sums it up: one block of the transcript.

While an answer is written it stands as plain text; when it is over, Markdown is made of the whole of it, once. Words of
a model never become markup, and an answer that is too long for Markdown stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from specchat.chat.history import StoredTurn
from specchat.commands.code_blocks import blocks
from specchat.tui.answer_footer import stored_footer
from specchat.tui.code_block_header import CodeHead, headings
from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.streaming_answer import Flowing

LONGEST_MARKDOWN = 100_000  # characters; the parser would hold up the screen for longer than a person waits
LINES_OF_QUESTION = 16


@dataclass(frozen=True)
class Asked:
    """A question and its place in the conversation; None for one that is no part of it."""

    question: str
    position: int | None


class TurnView(Vertical, can_focus=True):
    """One turn. `position` is its place in the conversation, None for a question that is no part of it."""

    HELP = "One question and its answer. Arrows go from block to block, Escape back to the prompt."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "act('copy')", "copy answer", id="copy"),
        Binding("c", "act('code')", "copy code", id="code"),
        Binding("e", "act('edit')", "edit question", id="edit"),
        Binding("r", "act('again')", "answer again", id="again"),
        Binding("f", "act('fork')", "fork from here", id="fork"),
        Binding("i", "act('inspect')", "who guessed it", id="look_into"),
        Binding("up,k", "app.focus_previous", "earlier", show=False),
        Binding("down,j", "app.focus_next", "later", show=False),
    ]

    @dataclass
    class Act(Message):
        """Something is to be done with a turn: copy, code, edit, again, fork, inspect."""

        turn: TurnView
        what: str

    def __init__(self, question: str, glyphs: Glyphs, position: int | None, files: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.question, self.position = question, position
        self.answer = ""
        self.is_over = self._is_settling = self.is_settled = False
        self._glyphs, self._files = glyphs, files
        self._unseen = ""
        self._is_newest = False

    def compose(self) -> ComposeResult:
        """Question, answer, footer."""
        yield Static(self._shown_question(), classes="question", markup=False)
        yield Flowing()
        yield Static("", classes="footer", markup=False)

    @property
    def asked(self) -> Asked:
        """The question, to be asked again or otherwise."""
        return Asked(self.question, self.position)

    def begin(self, files: tuple[str, ...]) -> None:
        """The question is being asked, with these files."""
        self._files = files
        self.query_one(".question", Static).update(self._shown_question())

    def write(self, text: str, *, is_seen: bool = True) -> None:
        """The answer grows; what nobody sees waits until somebody looks."""
        self.answer += text
        self._unseen += text
        if is_seen:
            self.look()

    def look(self) -> None:
        """Show what waited."""
        flowing = self.query(Flowing)
        if self._unseen and flowing:
            unseen, self._unseen = self._unseen, ""
            flowing.first().write(unseen)

    def note(self, footer: str, *, is_error: bool = False) -> None:
        """What is said below the answer."""
        line = self.query_one(".footer", Static)
        line.update(visible(footer))
        line.set_class(is_error, "-error")

    async def finish(self) -> None:
        """Make Markdown of the whole answer; in ASCII it stays as it was written, for Markdown is drawn with more."""
        self.is_over = True
        if self._is_settling:
            return
        self._is_settling = True
        if self._glyphs.ascii or not self.answer.strip() or len(self.answer) > LONGEST_MARKDOWN:
            self.look()
            self._show_heads()
            self.is_settled = True
            return
        from specchat.tui.markdown_answer import Settled  # the parser can wait until there is something to parse

        flowing = self.query_one(Flowing)
        settled = Settled(visible(self.answer), self._glyphs, is_newest=self._is_newest)
        settled.display = False
        await self.mount(settled, after=flowing)
        await settled.show()
        with self.app.batch_update():
            settled.display = True
            await flowing.remove()
        self._unseen = ""
        self.is_settled = True
        self._show_heads()

    def mark(self, *, is_newest: bool) -> None:
        """Is its answer the last one of the conversation, which commands are about?"""
        if is_newest != self._is_newest:
            self._is_newest = is_newest
            if self.is_settled:
                self._show_heads()

    def _show_heads(self) -> None:
        """What can be done with the blocks of code."""
        for flowing in self.query(Flowing):
            flowing.head(
                {
                    line: partial(heading.line, glyphs=self._glyphs, is_newest=self._is_newest, is_fence=True)
                    for line, heading in headings(visible(self.answer)).items()
                }
            )
        for head in self.query(CodeHead):
            head.mark(is_newest=self._is_newest)

    async def show_stored(self, stored: StoredTurn) -> None:
        """A turn from the history."""
        self.answer = self._unseen = stored.answered.text
        self.note(stored_footer(stored.state, stored.totals, self._glyphs), is_error=stored.state == "failed")
        await self.finish()

    def action_act(self, what: str) -> None:
        """Leave it to whoever knows how."""
        self.post_message(self.Act(self, what))

    def on_click(self) -> None:
        """A click takes the block cursor here."""
        self.focus(scroll_visible=False)

    def _shown_question(self) -> str:
        lines = visible(self.question).split("\n")
        if len(lines) > LINES_OF_QUESTION:
            rest = len(lines) - LINES_OF_QUESTION
            lines = [*lines[:LINES_OF_QUESTION], f"{self._glyphs.more} {rest} more lines"]
        files = "".join(f"  @{visible(name)}" for name in self._files if f"@{name}" not in self.question)
        indented = "\n  ".join(line[:2000] for line in lines)
        return f"{self._glyphs.question} {indented}{files}"


def code_blocks(answer: str) -> list[str]:
    """What stands between the fences of an answer, in order."""
    return [block.text for block in blocks(answer)]
