"""A dialogue in place of the prompt: a hunk with its keys, a line or a text to edit, or a yes-no question.

It shows a request and posts the answer; `edit/hunk_prompt.py` gives the keys their meaning, for every front end.
"""

from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static, TextArea

from specchat.drawing.glyphs import Glyphs, printable
from specchat.tui.diff_content import diff_content
from specchat.tui.own_label import OwnLabel
from specchat.tui.worker_messages import InputKind, InputRequest

TITLE_SEPARATOR = " · "  # after the name of the file
DECISION_KEYS = "ynadescuq"
VALID_KEYS = {InputKind.YES_NO: "yn", InputKind.CONSENT: "yans"}
HUNK_KEY_HELP = "Take this change?  y yes  n no  a all  d no more  e edit  s split  c comment  u undo  q quit"
KEY_HELP = {
    InputKind.YES_NO: "y yes  n no  Escape no",
    InputKind.CONSENT: "Allow it?  y yes  a always in this session  n no  s no and stop",
    InputKind.KEY: HUNK_KEY_HELP,
    InputKind.LINE: "Enter requests a rewrite  Escape goes back",
    InputKind.TEXT: "Ctrl+S accepts these lines  Escape goes back",
}
CANCEL_ANSWERS = {
    InputKind.KEY: "q",
    InputKind.YES_NO: "n",
    InputKind.CONSENT: "s",
    InputKind.LINE: "",
    InputKind.TEXT: None,
}
BUSY_KEY_HELP = "Escape stops"


class Approval(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "back", priority=True),  # before the text area, which would handle it
        Binding("ctrl+s", "submit_text", "accept these lines"),
    ]

    @dataclass
    class Answered(Message):
        """The answer of the user; None cancels."""

        text: str | None

    class StopRequested(Message):
        """The user stops the running work."""

    class HunkView(VerticalScroll, can_focus=True):
        """The lines of a hunk, and the keys that decide on it."""

        BINDINGS: ClassVar[list[BindingType]] = [Binding(key, f"answer('{key}')", show=False) for key in DECISION_KEYS]

        def action_answer(self, key: str) -> None:
            assert isinstance(self.parent, Approval)
            self.parent.answer_with_key(key)

    def __init__(self, request: InputRequest, glyphs: Glyphs, grace_seconds: float = 0.0) -> None:
        super().__init__(id="approval")
        self._request, self._glyphs = request, glyphs
        self._grace_seconds = grace_seconds
        self._ignore_keys_until = monotonic() + grace_seconds  # keys that were meant for the prompt must not answer
        self.is_busy = False

    def compose(self) -> ComposeResult:
        yield OwnLabel("", classes="title", markup=False)
        with self.HunkView():
            yield Static("", classes="hunk", markup=False)
        yield OwnLabel("", classes="notice", markup=False)
        yield Input(compact=True)
        yield TextArea(compact=True, soft_wrap=False, tab_behavior="indent")
        yield OwnLabel("", classes="keys", markup=False)

    def on_mount(self) -> None:
        self.show_request(self._request)

    def show_request(self, request: InputRequest) -> None:
        self._request, self.is_busy = request, False
        if request.kind is InputKind.CONSENT:  # a second press of the key for the call before must not answer
            self._ignore_keys_until = monotonic() + self._grace_seconds
        title, _, lines = request.hunk.partition("\n")
        self.query_one(".title", Static).update(printable(title.replace("·", self._glyphs.dot)))
        self.query_one(".hunk", Static).update(
            diff_content(title.partition(TITLE_SEPARATOR)[0], lines.removesuffix("\n"))
        )
        self._show_notice(request.notice)
        hunk, line, text = self.query_one(self.HunkView), self.query_one(Input), self.query_one(TextArea)
        hunk.display, line.display, text.display = (
            request.kind is not InputKind.TEXT, request.kind is InputKind.LINE, request.kind is InputKind.TEXT
        )  # fmt: skip
        match request.kind:
            case InputKind.KEY | InputKind.YES_NO | InputKind.CONSENT:
                self.screen.set_focus(hunk)
                hunk.scroll_home(animate=False)
            case InputKind.LINE:
                line.value, line.placeholder = "", request.text.strip()
                self.screen.set_focus(line)
            case InputKind.TEXT:
                text.load_text(request.text)
                self.screen.set_focus(text)
        self._show_key_help(KEY_HELP[request.kind])

    @property
    def is_deciding(self) -> bool:
        """Whether a request is on the screen and has the focus, so that the next key answers it."""
        return self.has_focus_within and not self.is_busy

    def show_progress(self, line: str) -> None:
        if self.is_busy:
            self._show_notice(line)

    def answer_with_key(self, key: str) -> None:
        """A decision key; ignored until the user can have seen the hunk."""
        is_valid = key in VALID_KEYS.get(self._request.kind, key)
        if is_valid and monotonic() >= self._ignore_keys_until:
            self._answer(key)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._answer(event.value)

    def action_submit_text(self) -> None:
        if self._request.kind is InputKind.TEXT:
            self._answer(self.query_one(TextArea).text)

    def action_cancel(self) -> None:
        """Stop the running work; else go back, or decline."""
        if self.is_busy:
            self.post_message(self.StopRequested())
        else:
            self._answer(CANCEL_ANSWERS[self._request.kind])

    def _answer(self, text: str | None) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._show_key_help(BUSY_KEY_HELP)
            self.post_message(self.Answered(text))

    def _show_notice(self, notice: str) -> None:
        line = self.query_one(".notice", Static)
        line.update(printable(notice.replace("·", self._glyphs.dot)))
        line.display = bool(notice)

    def _show_key_help(self, keys: str) -> None:
        self.query_one(".keys", Static).update(keys)
