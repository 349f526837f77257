"""A dialogue where the prompt was: a hunk and a letter for it, a line to write, lines to change, or yes and no.

It shows what it is told and says what was pressed; what that means is known to `edit/hunk_prompt.py`, for every front end.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static, TextArea

from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.worker_messages import InputKind, InputRequest

LINE_STYLES = {"+": "$text-success", "-": "$text-error", "@": "$text-muted"}
YES_NO_KEYS = "yn"
HUNK_KEY_HELP = "y take  n skip  e edit  s split  a all  d done  c retry  u back  q quit"
KEY_HELP = {
    InputKind.YES_NO: "y yes  n no  Escape no",
    InputKind.KEY: HUNK_KEY_HELP,
    InputKind.LINE: "Enter has it written again  Escape goes back",
    InputKind.TEXT: "Ctrl+S takes these lines  Escape goes back",
}
BUSY_KEY_HELP = "Escape stops"


class Approval(Vertical):
    """One question at a time; a hunk scrolls where it is longer than its place."""

    HELP = "Something waits for you. Of an edit, the signs - and + stand before what goes and what comes."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", priority=True),  # a text area that indents would take it
        Binding("ctrl+s", "take_lines", "take these lines"),
    ]

    @dataclass
    class Answered(Message):
        """What the person answered; None for nothing."""

        text: str | None

    class StopRequested(Message):
        """What is being done is to end."""

    class HunkView(VerticalScroll, can_focus=True):
        """The lines, and the letters that say what becomes of them."""

        BINDINGS: ClassVar[list[BindingType]] = [
            Binding("y", "say('y')", "take"),
            Binding("n", "say('n')", "skip"),
            Binding("e", "say('e')", "edit"),
            Binding("s", "say('s')", "split"),
            Binding("a", "say('a')", "take the rest"),
            Binding("d", "say('d')", "skip the rest"),
            Binding("c", "say('c')", "have it written again"),
            Binding("u", "say('u')", "back"),
            Binding("q", "say('q')", "leave it all"),
        ]

        @dataclass
        class KeyPressed(Message):
            """A letter."""

            key: str

        def action_answer(self, key: str) -> None:
            """Leave it to whoever knows how."""
            self.post_message(self.KeyPressed(key))

    def __init__(self, request: InputRequest, glyphs: Glyphs, grace_seconds: float = 0.0) -> None:
        super().__init__(id="approval")
        self._request, self._glyphs = request, glyphs
        self._ignore_keys_until = monotonic() + grace_seconds  # what is just being typed must not answer
        self.is_busy = False

    def compose(self) -> ComposeResult:
        """Title, the lines, what was remarked, the keys."""
        yield Static("", classes="title", markup=False)
        with self.HunkView():
            yield Static("", classes="hunk", markup=False)
        yield Static("", classes="remark", markup=False)
        yield Input(compact=True)
        yield TextArea(compact=True, soft_wrap=False, tab_behavior="indent")
        yield Static("", classes="keys", markup=False)

    def on_mount(self) -> None:
        """Take the keys at once."""
        self.show_request(self._request)

    def show_request(self, request: InputRequest) -> None:
        """The next question."""
        self._request, self.is_busy = request, False
        title, _, lines = request.hunk.partition("\n")
        self.query_one(".title", Static).update(printable(title.replace("·", self._glyphs.dot)))
        self.query_one(".hunk", Static).update(
            Content("\n").join(map(_styled_line, lines.removesuffix("\n").split("\n")))
        )
        self._show_notice(request.notice)
        hunk, line, text = self.query_one(self.HunkView), self.query_one(Input), self.query_one(TextArea)
        hunk.display, line.display, text.display = (
            request.kind is not InputKind.TEXT, request.kind is InputKind.LINE, request.kind is InputKind.TEXT
        )  # fmt: skip
        match request.kind:
            case InputKind.KEY | InputKind.YES_NO:
                self.screen.set_focus(hunk)
                hunk.scroll_home(animate=False)
            case InputKind.LINE:
                line.value, line.placeholder = "", request.text.strip()
                self.screen.set_focus(line)
            case InputKind.TEXT:
                text.load_text(request.text)
                self.screen.set_focus(text)
        self._show_key_help(KEY_HELP[request.kind])

    def show_progress(self, line: str) -> None:
        """How far what is being done is."""
        if self.is_busy:
            self._show_notice(line)

    def on_hunk_view_key_pressed(self, event: Approval.HunkView.KeyPressed) -> None:
        """A letter; one that comes before the hunk was seen is none."""
        event.stop()
        is_known = self._request.kind is not InputKind.YES_NO or event.key in YES_NO_KEYS
        if is_known and monotonic() >= self._ignore_keys_until:
            self._answer(event.key)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """A line."""
        event.stop()
        self._answer(event.value)

    def action_submit_text(self) -> None:
        """The lines as they stand now."""
        if self._request.kind is InputKind.TEXT:
            self._answer(self.query_one(TextArea).text)

    def action_cancel(self) -> None:
        """Stop what is being done, else go back, else nothing of it."""
        if self.is_busy:
            self.post_message(self.StopRequested())
        else:
            self._answer(
                {InputKind.KEY: "q", InputKind.YES_NO: "n", InputKind.LINE: "", InputKind.TEXT: None}[
                    self._request.kind
                ]
            )

    def _answer(self, text: str | None) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._show_key_help(BUSY_KEY_HELP)
            self.post_message(self.Answered(text))

    def _show_notice(self, remark: str) -> None:
        line = self.query_one(".remark", Static)
        line.update(printable(remark.replace("·", self._glyphs.dot)))
        line.display = bool(remark)

    def _show_key_help(self, keys: str) -> None:
        self.query_one(".keys", Static).update(keys)


def _styled_line(line: str) -> Content:
    shown = Content(printable(line.rstrip("\r\n")))
    return shown.stylize(LINE_STYLES[line[0]]) if line[:1] in LINE_STYLES else shown
