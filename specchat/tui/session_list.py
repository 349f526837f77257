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
from specchat.tui.background_requests import BackgroundRequests, Json
from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.session_preview import SessionPreview
from specchat.tui.session_row import SessionRow, session_row_from_json

KEY_HINT = "Enter go on   Ctrl+F copy and go on   F2 rename   Ctrl+D delete   Ctrl+Z undo   Esc back"
MAX_ROWS = 200
MIN_SEARCH_CHARS = 2
MIN_PREVIEW_COLUMNS = 100


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
    class RowsReceived(Message):
        """The host answered: rows for what was typed, or what went wrong."""

        search_text: str
        response: Json | SpecchatError

    @dataclass
    class ChangeDone(Message):
        """Something was changed, or not."""

        notice: str
        response: Json | SpecchatError

    @dataclass
    class PreviewRead(Message):
        """What was said last in a conversation."""

        session_id: str
        turn: StoredTurn | None

    def __init__(self, background_requests: BackgroundRequests, current: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._background_requests, self._current_session, self._glyphs = background_requests, current, glyphs
        self._all_rows: list[SessionRow] = []
        self._shown_rows: list[SessionRow] = []
        self._deleted_rows: list[SessionRow] = []

    def compose(self) -> ComposeResult:
        """Search, list, keys."""
        yield Static("conversations", id="sessions-title", markup=False)
        yield Input(placeholder="search names and what was said", id="search", compact=True)
        yield Input(id="new-name", compact=True)
        with Horizontal():
            yield OptionList(id="sessions", markup=False)
            yield SessionPreview(self._glyphs)
        yield Static(KEY_HINT, id="hint", markup=False)

    def on_mount(self) -> None:
        """Ask for the list."""
        self.query_one("#new-name").display = False
        self.query_one("#search").focus()
        self._request_rows()

    @property
    def highlighted_row(self) -> SessionRow | None:
        """The conversation that is marked."""
        at = self.query_one("#sessions", OptionList).highlighted
        return self._shown_rows[at] if at is not None and at < len(self._shown_rows) else None

    @on(Input.Changed, "#search")
    def search(self, event: Input.Changed) -> None:
        """Names at once, what was said as soon as the host has looked."""
        self._show_rows([row for row in self._all_rows if row.matches(event.value)])
        if len(event.value.strip()) >= MIN_SEARCH_CHARS:
            typed = event.value
            self._background_requests.send(
                "list", {"search": typed}, lambda answer: self._post_from_thread(self.RowsReceived(typed, answer))
            )

    @on(RowsReceived)
    def receive_rows(self, event: RowsReceived) -> None:
        """Show what the host found, if it is still what is looked for."""
        if isinstance(event.response, SpecchatError):
            self._show_hint(str(event.response))
            return
        rows = [session_row_from_json(row) for row in event.response.get("sessions", ())]
        typed = self.query_one("#search", Input).value
        if not event.search_text:
            self._all_rows = rows
        if event.search_text and event.search_text != typed:
            return
        named = [row for row in self._all_rows if row.matches(typed)]
        known = {row.id for row in named}
        self._show_rows([*named, *(row for row in (rows if typed else ()) if row.id not in known)])

    @on(ChangeDone)
    def finish_change(self, event: ChangeDone) -> None:
        """Say what was done, and look again."""
        self._show_hint(str(event.response) if isinstance(event.response, SpecchatError) else event.notice)
        self._request_rows()

    @on(OptionList.OptionHighlighted)
    def request_preview(self) -> None:
        """Look into the marked conversation, if there is room to show it."""
        if (row := self.highlighted_row) and not self.has_class("-narrow"):
            self._background_requests.read_last_turn(
                row.id, lambda turn: self._post_from_thread(self.PreviewRead(row.id, turn))
            )

    @on(PreviewRead)
    def show_preview(self, event: PreviewRead) -> None:
        """Show it, if it is still what is marked."""
        if (row := self.highlighted_row) and row.id == event.session_id:
            self.query_one(SessionPreview).show_turn(event.turn)

    def on_resize(self) -> None:
        """A list alone where there is no room for more."""
        self.set_class(self.size.width < MIN_PREVIEW_COLUMNS, "-narrow")
        self.request_preview()

    @on(Input.Submitted, "#search")
    def open_highlighted(self) -> None:
        """With the marked one."""
        self.action_choose("open")

    @on(OptionList.OptionSelected)
    def open_clicked(self) -> None:
        """With the one that was clicked."""
        self.action_choose("open")

    @on(Input.Submitted, "#new-name")
    def rename_highlighted(self, event: Input.Submitted) -> None:
        """Rename the marked one."""
        name, row = event.value.strip(), self.highlighted_row
        if name and row:
            self._send_change("rename", row, f"now called {name}", name=name)
        self._end_renaming()

    def action_choose(self, method: str) -> None:
        """Leave with the marked conversation."""
        if row := self.highlighted_row:
            self._close_with((method, row.id))

    def action_back(self) -> None:
        """Out of the renaming, or of the list."""
        if self.query_one("#new-name").display:
            self._end_renaming()
        else:
            self._close_with(None)

    def _close_with(self, chosen: tuple[str, str] | None) -> None:
        """Once: a second key may already be on its way, and would take the screen below with it."""
        if self.is_current:
            self.dismiss(chosen)

    def action_move(self, step: int) -> None:
        """Mark another one."""
        rows = self.query_one("#sessions", OptionList)
        if self._shown_rows:
            rows.highlighted = ((rows.highlighted or 0) + step) % len(self._shown_rows)

    def action_rename(self) -> None:
        """Ask for a name."""
        if row := self.highlighted_row:
            name = self.query_one("#new-name", Input)
            name.value, name.display = row.name, True
            name.focus()
            self._show_hint("Enter renames, Esc leaves the name")

    def action_delete(self) -> None:
        """Take the marked one from the list."""
        row = self.highlighted_row
        if row is None:
            return
        if row.id == self._current_session:
            self._show_hint("this is the conversation on the screen; /delete takes it away")
            return
        self._deleted_rows.append(row)
        self._send_change("delete", row, f"deleted {row.name}; Ctrl+Z brings it back")

    def action_undo(self) -> None:
        """Bring the last deleted one back."""
        if self._deleted_rows:
            row = self._deleted_rows.pop()
            self._send_change("restore", row, f"{row.name} is back")

    def _send_change(self, method: str, row: SessionRow, said: str, **params: Any) -> None:
        self._background_requests.send(
            method, {"session": row.id, **params}, lambda answer: self._post_from_thread(self.ChangeDone(said, answer))
        )

    def _request_rows(self) -> None:
        self._background_requests.send(
            "list", {"kind": "chat"}, lambda answer: self._post_from_thread(self.RowsReceived("", answer))
        )

    def _post_from_thread(self, message: Message) -> None:
        """From the other thread."""
        self.post_message(message)

    def _end_renaming(self) -> None:
        self.query_one("#new-name").display = False
        self.query_one("#search").focus()
        self._show_hint("")

    def _show_hint(self, text: str) -> None:
        self.query_one("#hint", Static).update(printable(f"{text}\n{KEY_HINT}" if text else KEY_HINT))

    def _show_rows(self, rows: list[SessionRow]) -> None:
        self._shown_rows = rows[:MAX_ROWS]
        listed = self.query_one("#sessions", OptionList)
        before = listed.highlighted or 0
        listed.clear_options()
        listed.add_options(
            [Option(row.to_content(is_current=row.id == self._current_session)) for row in self._shown_rows]
        )
        listed.highlighted = min(before, len(self._shown_rows) - 1) if self._shown_rows else None
