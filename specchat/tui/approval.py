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

from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.messages import Query, Want

STYLES = {"+": "$text-success", "-": "$text-error", "@": "$text-muted"}
YES_OR_NO = "yn"
LETTERS = "y take  n skip  e edit  s split  a all  d done  c retry  u back  q quit"
KEYS = {
    Want.YES: "y yes  n no  Escape no",
    Want.LETTER: LETTERS,
    Want.LINE: "Enter has it written again  Escape goes back",
    Want.TEXT: "Ctrl+S takes these lines  Escape goes back",
}
BUSY = "Escape stops"


class Approval(Vertical):
    """One question at a time; a hunk scrolls where it is longer than its place."""

    HELP = "Something waits for you. Of an edit, the signs - and + stand before what goes and what comes."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", priority=True),  # a text area that indents would take it
        Binding("ctrl+s", "take_lines", "take these lines"),
    ]

    @dataclass
    class Said(Message):
        """What the person answered; None for nothing."""

        text: str | None

    class Stopped(Message):
        """What is being done is to end."""

    class Hunk(VerticalScroll, can_focus=True):
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
        class Pressed(Message):
            """A letter."""

            letter: str

        def action_say(self, letter: str) -> None:
            """Leave it to whoever knows how."""
            self.post_message(self.Pressed(letter))

    def __init__(self, query: Query, glyphs: Glyphs, grace: float = 0.0) -> None:
        super().__init__(id="approval")
        self._query, self._glyphs = query, glyphs
        self._deaf_until = monotonic() + grace  # what is just being typed must not answer
        self.is_busy = False

    def compose(self) -> ComposeResult:
        """Title, the lines, what was remarked, the keys."""
        yield Static("", classes="title", markup=False)
        with self.Hunk():
            yield Static("", classes="hunk", markup=False)
        yield Static("", classes="remark", markup=False)
        yield Input(compact=True)
        yield TextArea(compact=True, soft_wrap=False, tab_behavior="indent")
        yield Static("", classes="keys", markup=False)

    def on_mount(self) -> None:
        """Take the keys at once."""
        self.ask(self._query)

    def ask(self, query: Query) -> None:
        """The next question."""
        self._query, self.is_busy = query, False
        title, _, lines = query.hunk.partition("\n")
        self.query_one(".title", Static).update(visible(title.replace("·", self._glyphs.dot)))
        self.query_one(".hunk", Static).update(Content("\n").join(map(_drawn, lines.removesuffix("\n").split("\n"))))
        self._remark(query.remark)
        hunk, line, text = self.query_one(self.Hunk), self.query_one(Input), self.query_one(TextArea)
        hunk.display, line.display, text.display = (
            query.want is not Want.TEXT, query.want is Want.LINE, query.want is Want.TEXT
        )  # fmt: skip
        match query.want:
            case Want.LETTER | Want.YES:
                self.screen.set_focus(hunk)
                hunk.scroll_home(animate=False)
            case Want.LINE:
                line.value, line.placeholder = "", query.text.strip()
                self.screen.set_focus(line)
            case Want.TEXT:
                text.load_text(query.text)
                self.screen.set_focus(text)
        self._show_keys(KEYS[query.want])

    def tell(self, line: str) -> None:
        """How far what is being done is."""
        if self.is_busy:
            self._remark(line)

    def on_hunk_pressed(self, event: Approval.Hunk.Pressed) -> None:
        """A letter; one that comes before the hunk was seen is none."""
        event.stop()
        is_known = self._query.want is not Want.YES or event.letter in YES_OR_NO
        if is_known and monotonic() >= self._deaf_until:
            self._say(event.letter)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """A line."""
        event.stop()
        self._say(event.value)

    def action_take_lines(self) -> None:
        """The lines as they stand now."""
        if self._query.want is Want.TEXT:
            self._say(self.query_one(TextArea).text)

    def action_leave(self) -> None:
        """Stop what is being done, else go back, else nothing of it."""
        if self.is_busy:
            self.post_message(self.Stopped())
        else:
            self._say({Want.LETTER: "q", Want.YES: "n", Want.LINE: "", Want.TEXT: None}[self._query.want])

    def _say(self, text: str | None) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._show_keys(BUSY)
            self.post_message(self.Said(text))

    def _remark(self, remark: str) -> None:
        line = self.query_one(".remark", Static)
        line.update(visible(remark.replace("·", self._glyphs.dot)))
        line.display = bool(remark)

    def _show_keys(self, keys: str) -> None:
        self.query_one(".keys", Static).update(keys)


def _drawn(line: str) -> Content:
    shown = Content(visible(line.rstrip("\r\n")))
    return shown.stylize(STYLES[line[0]]) if line[:1] in STYLES else shown
