"""An edit to be looked at, hunk by hunk, where the prompt was: y takes, n skips, a takes the rest, q leaves it all.

Lines of a unified diff go in, a choice for each hunk comes out. It knows no file and applies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from specchat.tui.glyphs import Glyphs, visible

STYLES = {"+": "$text-success", "-": "$text-error", "@": "$text-muted"}
KEYS = "y take   n skip   a take the rest   u back   q leave the file as it is"


@dataclass(frozen=True)
class Part:
    """A hunk: where it is, and the lines of a diff, each with its sign (" ", "-" or "+")."""

    place: str
    lines: tuple[str, ...]


class Approval(VerticalScroll, can_focus=True):
    """One hunk at a time; it scrolls where it is longer than its place."""

    HELP = "What an edit would change. The signs - and + stand before what goes and what comes."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide(True)", "take"),
        Binding("n", "decide(False)", "skip"),
        Binding("a", "take_rest", "take the rest"),
        Binding("u", "back", "back"),
        Binding("q,escape", "leave", "leave it"),
    ]

    @dataclass
    class Decided(Message):
        """Every hunk was looked at: which of them are taken."""

        taken: tuple[bool, ...]

    class Left(Message):
        """Nothing is to be changed."""

    def __init__(self, name: str, parts: Sequence[Part], glyphs: Glyphs, grace: float = 0.0) -> None:
        super().__init__(id="approval")
        self._name, self._parts, self._glyphs = visible(name), list(parts), glyphs
        self._taken: list[bool] = []
        self._deaf_until = monotonic() + grace  # what is just being typed must not answer

    def compose(self) -> ComposeResult:
        """Title, the lines, the keys."""
        yield Static("", classes="title", markup=False)
        yield Static("", classes="hunk", markup=False)
        yield Static(KEYS, classes="keys", markup=False)

    def on_mount(self) -> None:
        """Take the keys at once."""
        self.screen.set_focus(self)
        self._show()

    def action_decide(self, is_taken: bool) -> None:
        """This hunk, and on to the next."""
        if self._hears:
            self._decide([is_taken])

    def action_take_rest(self) -> None:
        """This hunk and all that follow."""
        if self._hears:
            self._decide([True] * (len(self._parts) - len(self._taken)))

    def action_back(self) -> None:
        """Think once more about the hunk before."""
        if self._taken:
            self._taken.pop()
            self._show()

    def action_leave(self) -> None:
        """Nothing of it."""
        self.post_message(self.Left())

    @property
    def _hears(self) -> bool:
        return len(self._taken) < len(self._parts) and monotonic() >= self._deaf_until

    def _decide(self, decided: Sequence[bool]) -> None:
        self._taken += decided
        if len(self._taken) == len(self._parts):
            self.post_message(self.Decided(tuple(self._taken)))
        else:
            self._show()

    def _show(self) -> None:
        part = self._parts[len(self._taken)]
        where = f"{self._name} {self._glyphs.dot} hunk {len(self._taken) + 1}/{len(self._parts)}"
        self.query_one(".title", Static).update(f"{where} {self._glyphs.dot} {visible(part.place)}")
        self.query_one(".hunk", Static).update(Content("\n").join(map(_drawn, part.lines)))
        self.scroll_home(animate=False)


def _drawn(line: str) -> Content:
    shown = Content(visible(line.rstrip("\r\n")))
    return shown.stylize(STYLES[line[0]]) if line[:1] in STYLES else shown
