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
from specchat.commands.code_blocks import find_code_blocks
from specchat.tui.answer_footer import stored_footer
from specchat.tui.code_block_header import CodeBlockHeader, header_texts
from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.streaming_answer import StreamingAnswer

MAX_MARKDOWN_CHARS = 100_000  # characters; the parser would hold up the screen for longer than a person waits
MAX_QUESTION_LINES = 16


@dataclass(frozen=True)
class QuestionRef:
    """A question and its place in the conversation; None for one that is no part of it."""

    text: str
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
    class ActionRequested(Message):
        """Something is to be done with a turn: copy, code, edit, again, fork, inspect."""

        turn: TurnView
        action: str

    def __init__(self, question: str, glyphs: Glyphs, position: int | None, files: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.question, self.position = question, position
        self.answer = ""
        self.is_finished = self._is_finalizing = self.is_final = False
        self._glyphs, self._files = glyphs, files
        self._pending_text = ""
        self._is_newest = False

    def compose(self) -> ComposeResult:
        """Question, answer, footer."""
        yield Static(self._question_text(), classes="question", markup=False)
        yield StreamingAnswer()
        yield Static("", classes="footer", markup=False)

    @property
    def question_ref(self) -> QuestionRef:
        """The question, to be asked again or otherwise."""
        return QuestionRef(self.question, self.position)

    def set_files(self, files: tuple[str, ...]) -> None:
        """The question is being asked, with these files."""
        self._files = files
        self.query_one(".question", Static).update(self._question_text())

    def append_text(self, text: str, *, is_in_view: bool = True) -> None:
        """The answer grows; what nobody sees waits until somebody looks."""
        self.answer += text
        self._pending_text += text
        if is_in_view:
            self.show_pending_text()

    def show_pending_text(self) -> None:
        """Show what waited."""
        flowing = self.query(StreamingAnswer)
        if self._pending_text and flowing:
            unseen, self._pending_text = self._pending_text, ""
            flowing.first().append_text(unseen)

    def set_footer(self, footer: str, *, is_error: bool = False) -> None:
        """What is said below the answer."""
        line = self.query_one(".footer", Static)
        line.update(printable(footer))
        line.set_class(is_error, "-error")

    async def finalize(self) -> None:
        """Make Markdown of the whole answer; in ASCII it stays as it was written, for Markdown is drawn with more."""
        self.is_finished = True
        if self._is_finalizing:
            return
        self._is_finalizing = True
        if self._glyphs.is_ascii or not self.answer.strip() or len(self.answer) > MAX_MARKDOWN_CHARS:
            self.show_pending_text()
            self._show_code_headers()
            self.is_final = True
            return
        from specchat.tui.markdown_answer import MarkdownAnswer  # the parser can wait until there is something to parse

        flowing = self.query_one(StreamingAnswer)
        settled = MarkdownAnswer(printable(self.answer), self._glyphs, is_newest=self._is_newest)
        settled.display = False
        await self.mount(settled, after=flowing)
        await settled.show_markdown()
        with self.app.batch_update():
            settled.display = True
            await flowing.remove()
        self._pending_text = ""
        self.is_final = True
        self._show_code_headers()

    def set_newest(self, *, is_newest: bool) -> None:
        """Is its answer the last one of the conversation, which commands are about?"""
        if is_newest != self._is_newest:
            self._is_newest = is_newest
            if self.is_final:
                self._show_code_headers()

    def _show_code_headers(self) -> None:
        """What can be done with the blocks of code."""
        for flowing in self.query(StreamingAnswer):
            flowing.replace_lines(
                {
                    line: partial(heading.to_line, glyphs=self._glyphs, is_newest=self._is_newest, is_fence=True)
                    for line, heading in header_texts(printable(self.answer)).items()
                }
            )
        for head in self.query(CodeBlockHeader):
            head.set_newest(is_newest=self._is_newest)

    async def show_stored(self, stored: StoredTurn) -> None:
        """A turn from the history."""
        self.answer = self._pending_text = stored.answer.text
        self.set_footer(stored_footer(stored.state, stored.totals, self._glyphs), is_error=stored.state == "failed")
        await self.finalize()

    def action_request(self, action: str) -> None:
        """Leave it to whoever knows how."""
        self.post_message(self.ActionRequested(self, action))

    def on_click(self) -> None:
        """A click takes the block cursor here."""
        self.focus(scroll_visible=False)

    def _question_text(self) -> str:
        lines = printable(self.question).split("\n")
        if len(lines) > MAX_QUESTION_LINES:
            rest = len(lines) - MAX_QUESTION_LINES
            lines = [*lines[:MAX_QUESTION_LINES], f"{self._glyphs.ellipsis} {rest} more lines"]
        files = "".join(f"  @{printable(name)}" for name in self._files if f"@{name}" not in self.question)
        indented = "\n  ".join(line[:2000] for line in lines)
        return f"{self._glyphs.prompt_mark} {indented}{files}"


def code_block_texts(answer: str) -> list[str]:
    """What stands between the fences of an answer, in order."""
    return [block.text for block in find_code_blocks(answer)]
