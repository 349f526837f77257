"""The list of conversations: go on with one, copy it, rename it, delete it and think better of it.

Type to search: names first, then what was said. The list comes from the host over the second line, so it can be looked
at while an answer is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specchat.chat.history import StoredTurn
from specchat.errors import SpecchatError
from specchat.tui.background_requests import Errands, Json
from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.session_preview import Preview
from specchat.tui.session_row import Listed, listed_from

HINT = "Enter go on   Ctrl+F copy and go on   F2 rename   Ctrl+D delete   Ctrl+Z undo   Esc back"
MOST_ROWS = 200
SHORTEST_SEARCH = 2
NARROWEST_WITH_PREVIEW = 100


class SessionsScreen(Screen[tuple[str, str] | None]):
    """Ends with ("open" or "fork", id), or None."""

    HELP = "Type to search names and everything that was said."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("up", "move(-1)", "up", show=False, priority=True),
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("ctrl+f", "choose('fork')", "copy and go on", priority=True, id="list_fork"),
        Binding("f2", "rename", "rename", priority=True, id="list_rename"),
        Binding("ctrl+d", "delete", "delete", priority=True, id="list_delete"),
        Binding("ctrl+z", "undo", "undo", priority=True, id="list_undo"),
    ]

    @dataclass
    class Answered(Message):
        """The host answered: rows for what was typed, or what went wrong."""

        typed: str
        answer: Json | SpecchatError

    @dataclass
    class Done(Message):
        """Something was changed, or not."""

        said: str
        answer: Json | SpecchatError

    @dataclass
    class Glanced(Message):
        """What was said last in a conversation."""

        session: str
        turn: StoredTurn | None

    def __init__(self, errands: Errands, current: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._errands, self._current, self._glyphs = errands, current, glyphs
        self._all: list[Listed] = []
        self._rows: list[Listed] = []
        self._deleted: list[Listed] = []

    def compose(self) -> ComposeResult:
        """Search, list, keys."""
        yield Static("conversations", id="sessions-title", markup=False)
        yield Input(placeholder="search names and what was said", id="search", compact=True)
        yield Input(id="new-name", compact=True)
        with Horizontal():
            yield OptionList(id="sessions", markup=False)
            yield Preview(self._glyphs)
        yield Static(HINT, id="hint", markup=False)

    def on_mount(self) -> None:
        """Ask for the list."""
        self.query_one("#new-name").display = False
        self.query_one("#search").focus()
        self._refresh()

    @property
    def marked(self) -> Listed | None:
        """The conversation that is marked."""
        at = self.query_one("#sessions", OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    @on(Input.Changed, "#search")
    def search(self, event: Input.Changed) -> None:
        """Names at once, what was said as soon as the host has looked."""
        self._show([row for row in self._all if row.matches(event.value)])
        if len(event.value.strip()) >= SHORTEST_SEARCH:
            typed = event.value
            self._errands.send("list", {"search": typed}, lambda answer: self._post(self.Answered(typed, answer)))

    @on(Answered)
    def take_rows(self, event: Answered) -> None:
        """Show what the host found, if it is still what is looked for."""
        if isinstance(event.answer, SpecchatError):
            self._say(str(event.answer))
            return
        rows = [listed_from(row) for row in event.answer.get("sessions", ())]
        typed = self.query_one("#search", Input).value
        if not event.typed:
            self._all = rows
        if event.typed and event.typed != typed:
            return
        named = [row for row in self._all if row.matches(typed)]
        known = {row.id for row in named}
        self._show([*named, *(row for row in (rows if typed else ()) if row.id not in known)])

    @on(Done)
    def take_done(self, event: Done) -> None:
        """Say what was done, and look again."""
        self._say(str(event.answer) if isinstance(event.answer, SpecchatError) else event.said)
        self._refresh()

    @on(OptionList.OptionHighlighted)
    def glance(self) -> None:
        """Look into the marked conversation, if there is room to show it."""
        if (row := self.marked) and not self.has_class("-narrow"):
            self._errands.read_last_turn(row.id, lambda turn: self._post(self.Glanced(row.id, turn)))

    @on(Glanced)
    def show_glance(self, event: Glanced) -> None:
        """Show it, if it is still what is marked."""
        if (row := self.marked) and row.id == event.session:
            self.query_one(Preview).show(event.turn)

    def on_resize(self) -> None:
        """A list alone where there is no room for more."""
        self.set_class(self.size.width < NARROWEST_WITH_PREVIEW, "-narrow")
        self.glance()

    @on(Input.Submitted, "#search")
    def go_on(self) -> None:
        """With the marked one."""
        self.action_choose("open")

    @on(OptionList.OptionSelected)
    def go_on_with_clicked(self) -> None:
        """With the one that was clicked."""
        self.action_choose("open")

    @on(Input.Submitted, "#new-name")
    def take_name(self, event: Input.Submitted) -> None:
        """Rename the marked one."""
        name, row = event.value.strip(), self.marked
        if name and row:
            self._change("rename", row, f"now called {name}", name=name)
        self._end_renaming()

    def action_choose(self, way: str) -> None:
        """Leave with the marked conversation."""
        if row := self.marked:
            self._leave((way, row.id))

    def action_back(self) -> None:
        """Out of the renaming, or of the list."""
        if self.query_one("#new-name").display:
            self._end_renaming()
        else:
            self._leave(None)

    def _leave(self, chosen: tuple[str, str] | None) -> None:
        """Once: a second key may already be on its way, and would take the screen below with it."""
        if self.is_current:
            self.dismiss(chosen)

    def action_move(self, step: int) -> None:
        """Mark another one."""
        rows = self.query_one("#sessions", OptionList)
        if self._rows:
            rows.highlighted = ((rows.highlighted or 0) + step) % len(self._rows)

    def action_rename(self) -> None:
        """Ask for a name."""
        if row := self.marked:
            name = self.query_one("#new-name", Input)
            name.value, name.display = row.name, True
            name.focus()
            self._say("Enter renames, Esc leaves the name")

    def action_delete(self) -> None:
        """Take the marked one from the list."""
        row = self.marked
        if row is None:
            return
        if row.id == self._current:
            self._say("this is the conversation on the screen; /delete takes it away")
            return
        self._deleted.append(row)
        self._change("delete", row, f"deleted {row.name}; Ctrl+Z brings it back")

    def action_undo(self) -> None:
        """Bring the last deleted one back."""
        if self._deleted:
            row = self._deleted.pop()
            self._change("restore", row, f"{row.name} is back")

    def _change(self, method: str, row: Listed, said: str, **params: Any) -> None:
        self._errands.send(method, {"session": row.id, **params}, lambda answer: self._post(self.Done(said, answer)))

    def _refresh(self) -> None:
        self._errands.send("list", {"kind": "chat"}, lambda answer: self._post(self.Answered("", answer)))

    def _post(self, message: Message) -> None:
        """From the other thread."""
        self.post_message(message)

    def _end_renaming(self) -> None:
        self.query_one("#new-name").display = False
        self.query_one("#search").focus()
        self._say("")

    def _say(self, text: str) -> None:
        self.query_one("#hint", Static).update(visible(f"{text}\n{HINT}" if text else HINT))

    def _show(self, rows: list[Listed]) -> None:
        self._rows = rows[:MOST_ROWS]
        listed = self.query_one("#sessions", OptionList)
        before = listed.highlighted or 0
        listed.clear_options()
        listed.add_options([Option(row.drawn(is_current=row.id == self._current)) for row in self._rows])
        listed.highlighted = min(before, len(self._rows) - 1) if self._rows else None
