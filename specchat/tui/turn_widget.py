"""One turn of the transcript: the request, the answer, and a footer with its cost and why it ended.

While an answer streams it is shown as plain text; at its end it is parsed as Markdown once. The text of a model is
never interpreted as markup, and an answer that is too long for Markdown stays plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from specchat.app.agent.agent_tool import ToolOutcome
from specchat.chat.turn_summary import summary_line
from specchat.drawing.glyphs import Glyphs, printable
from specchat.history.history_reader import StoredTurn
from specchat.host.protocol import totals_from_json
from specchat.tui.code_block_header import CodeBlockHeader
from specchat.tui.folded_text import CallView, ThinkingView
from specchat.tui.own_label import OwnLabel
from specchat.tui.streaming_answer import StreamingAnswer

MAX_MARKDOWN_CHARS = 100_000  # parsing a longer answer would block the screen noticeably
MAX_QUESTION_LINES = 16


@dataclass(frozen=True)
class QuestionRef:
    """A request and its position in the conversation; None if it is not part of it."""

    text: str
    position: int | None


class VersionSwitch(Static):
    """`<2/3>`: a click on its left half shows the version before, on its right half the one after."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.display = False

    def on_click(self, event: Click) -> None:
        event.stop()
        assert isinstance(self.parent, TurnView)
        self.parent.action_request("earlier_version" if event.x < self.size.width / 2 else "later_version")


class TurnView(Vertical, can_focus=True):
    """One turn. `position` is its index in the conversation, None if it is not part of it.

    It has the focus while it is selected; the keys below act then, and the screen lists them.
    """

    FOCUS_ON_CLICK: ClassVar[bool] = False  # letters go to the prompt unless the user selects an answer by a key
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "request('copy')", "copy", id="copy"),
        Binding("c", "request('code')", "copy code", id="code"),
        Binding("e", "request('edit')", "edit question", id="edit"),
        Binding("r", "request('retry')", "answer again", id="retry"),
        Binding("f", "request('fork')", "fork", id="fork"),
        Binding("i", "request('inspect')", "inspect", id="inspect_turn"),
        Binding("t", "toggle_thinking", "thinking", id="thinking"),
        Binding("left", "request('earlier_version')", "version before", id="earlier_version"),
        Binding("right", "request('later_version')", "version after", id="later_version"),
        Binding("up,k", "screen.select_turn(-1)", "earlier", show=False),
        Binding("down,j", "screen.select_turn(1)", "later", show=False),
    ]

    @dataclass
    class ActionRequested(Message):
        """An action on a turn: copy, code, edit, retry, fork, inspect, earlier_version, later_version."""

        turn: TurnView
        action: str

    def __init__(self, question: str, glyphs: Glyphs, position: int | None, files: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.question, self.position = question, position
        self.answer = ""
        self.is_finished = self._is_finalizing = self.is_final = False
        self._glyphs, self._files = glyphs, files
        self._is_newest = False

    def compose(self) -> ComposeResult:
        question = Static(self._question_text(), classes="question", markup=False)
        question.display = bool(self.question or self._files)  # results of tools take the place of a question
        yield question
        yield ThinkingView(self._glyphs)
        yield StreamingAnswer(shows_fences=self._glyphs.is_ascii)
        yield OwnLabel("", classes="footer", markup=False)
        yield VersionSwitch()

    @property
    def question_ref(self) -> QuestionRef:
        return QuestionRef(self.question, self.position)

    def set_files(self, files: tuple[str, ...]) -> None:
        self._files = files
        self.query_one(".question", Static).update(self._question_text())

    def show_version(self, number: int, count: int) -> None:
        """Show which version of how many this turn is, where there are several."""
        switch = self.query_one(VersionSwitch)
        switch.update(f"<{number}/{count}>")
        switch.display = count > 1

    def append_text(self, text: str) -> None:
        self.answer += text
        for streaming in self.query_children(StreamingAnswer):
            streaming.append_text(text)

    def set_text(self, text: str) -> None:
        """Show another text in the place of the answer so far."""
        self.answer = text
        for streaming in self.query_children(StreamingAnswer):
            streaming.set_text(text)

    async def add_notice(self, text: str) -> None:
        """Show what is said about the answer: above it, or below what has come of it."""
        notice = OwnLabel(printable(text), classes="remark", markup=False)
        await self.mount(notice, before=".footer" if self.answer else "StreamingAnswer")

    async def add_call(self, summary: str, outcome: ToolOutcome | None = None) -> None:
        """Show a call of a tool below the answer."""
        await self.mount(CallView(summary, self._glyphs, outcome), before=self.query_one(".footer"))

    def show_call_progress(self, line: str) -> None:
        for call in self._running_calls():
            call.show_progress(line)

    def end_call(self, outcome: ToolOutcome) -> None:
        for call in self._running_calls():
            call.end(outcome)

    def _running_calls(self) -> list[CallView]:
        return [call for call in self.query(CallView) if call.outcome is None]

    def append_thinking(self, text: str, seconds: float) -> None:
        """Append to what the model thinks, which has lasted so long."""
        self.query_one(ThinkingView).add(text, seconds)
        self.refresh_bindings()

    def end_thinking(self, seconds: float = 0.0) -> None:
        """The answer begins; `seconds` is how long the thought took, if that is known."""
        thinking = self.query_one(ThinkingView)
        if thinking.text:
            thinking.end(seconds)

    def action_toggle_thinking(self) -> None:
        self.query_one(ThinkingView).toggle()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The key that unfolds a thought acts where there is one."""
        if action == "toggle_thinking":
            return any(view.text for view in self.query(ThinkingView))
        return super().check_action(action, parameters)

    def set_footer(self, footer: str, *, is_error: bool = False) -> None:
        line = self.query_one(".footer", Static)
        line.update(self._glyphs.drawn(printable(footer)))
        line.set_class(is_error, "-error")

    async def finalize(self) -> None:
        """Parse the whole answer as Markdown; in ASCII it stays plain, because Markdown needs other characters."""
        self.is_finished = True
        if self._is_finalizing:
            return
        self._is_finalizing = True
        streaming = self.query_children(StreamingAnswer).first()
        if self._glyphs.is_ascii or not self.answer.strip() or len(self.answer) > MAX_MARKDOWN_CHARS:
            if not streaming.wrapped_text.rows:  # of a stored answer, which is not drawn twice
                streaming.append_text(self.answer)
            self.is_final = True
            return
        from specchat.tui.markdown_answer import MarkdownAnswer  # the parser is imported with the first answer

        markdown = MarkdownAnswer(printable(self.answer), self._glyphs, is_newest=self._is_newest)
        markdown.display = False
        await self.mount(markdown, after=streaming)
        await markdown.update(markdown.answer)
        with self.app.batch_update():
            markdown.display = True
            await streaming.remove()
        self.is_final = True
        self.set_newest(is_newest=self._is_newest)

    def set_newest(self, *, is_newest: bool) -> None:
        """Set whether this is the last turn of the conversation, which commands work on."""
        self._is_newest = is_newest
        for header in self.query(CodeBlockHeader):
            header.set_newest(is_newest=is_newest)

    async def show_stored(self, stored: StoredTurn, outcomes: Mapping[str, ToolOutcome]) -> None:
        """Show a turn of the history, with the outcomes of its calls by their ids."""
        self.answer, totals = stored.answer.text, totals_from_json(stored.totals)
        if stored.answer.thinking:
            self.append_thinking(stored.answer.thinking, 0.0)
            self.end_thinking(totals.thinking_seconds)
        error = stored.totals.get("message")
        footer = f"failed: {error}" if error else summary_line(totals, finish_reason=stored.state)
        self.set_footer(footer, is_error=stored.state == "failed")
        for call in stored.answer.tool_calls:
            outcome = outcomes.get(call.id, ToolOutcome("no result", is_error=True))
            await self.add_call(f"{call.name} {call.arguments}", outcome)
        await self.finalize()

    def action_request(self, action: str) -> None:
        self.post_message(self.ActionRequested(self, action))

    def _question_text(self) -> str:
        lines = printable(self.question).split("\n")
        if len(lines) > MAX_QUESTION_LINES:
            rest = len(lines) - MAX_QUESTION_LINES
            lines = [*lines[:MAX_QUESTION_LINES], f"{self._glyphs.ellipsis} {rest} more lines"]
        files = "".join(f"  @{printable(name)}" for name in self._files if f"@{name}" not in self.question)
        indented = "\n  ".join(line[:2000] for line in lines)
        return f"{self._glyphs.prompt_mark} {indented}{files}"
