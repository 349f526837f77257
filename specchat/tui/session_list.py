"""The list of conversations: open, fork, rename, delete, and undo a deletion; beside it a preview.

Typing searches names first, then contents. The list uses the second connection to the host, so it works during an
answer.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specchat.app.session_lines import HEADINGS, session_details
from specchat.drawing.glyphs import Glyphs, printable
from specchat.errors import SpecchatError
from specchat.history.history_reader import ASK, CHAT, LISTED_KINDS, StoredTurn
from specchat.host.wire_values import from_json
from specchat.tui.background_requests import BackgroundRequests, Json
from specchat.tui.own_label import OwnLabel

MAX_QUESTION_CHARS, MAX_ANSWER_CHARS = 600, 3000  # of the preview; more would not fit
KEY_HINT = "Enter open   Ctrl+F open a copy   F2 rename   Ctrl+D delete   Ctrl+Z undo   Esc back"
MAX_ROWS = 200
MIN_SEARCH_CHARS = 2
MIN_PREVIEW_COLUMNS = 100


class SessionPreview(Static):
    """The last turn of the highlighted conversation."""

    def __init__(self, background_requests: BackgroundRequests, glyphs: Glyphs) -> None:
        super().__init__("", id="preview", markup=False)
        self._background_requests, self._glyphs = background_requests, glyphs
        self._session = ""

    def show_session(self, session_id: str) -> None:
        self._session = session_id
        self._background_requests.read_last_turn(session_id, self, partial(self.show_turn, session_id))

    def show_turn(self, session_id: str, turn: StoredTurn | None) -> None:
        """Show it, unless the highlight has moved since."""
        if session_id != self._session:
            return
        if turn is None:
            self.update(Content("this conversation is empty").stylize("$text-muted"))
            return
        question = printable(str(turn.request.get("text", ""))[:MAX_QUESTION_CHARS])
        heading = Content(f"{self._glyphs.prompt_mark} {question}").stylize("$text-accent")
        self.update(heading + Content("\n\n" + printable(turn.answer.text[:MAX_ANSWER_CHARS])))


@dataclass(frozen=True)
class SessionRow:
    id: str
    name: str
    updated: float
    kind: str = CHAT
    model: str = ""
    folder: str = ""
    turn_count: int = 0
    snippet: str = ""  # what a search found

    def matches(self, typed: str) -> bool:
        return all(word in self.name.lower() for word in typed.lower().split())

    def to_content(self, glyphs: Glyphs, *, is_current: bool) -> Content:
        """Two lines: the day and the name; the model, the folder and the length, or what a search found."""
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.updated))
        name = printable(self.name or "(no name)") + ("  (open)" if is_current else "")
        details = session_details(self.model, self.folder, self.turn_count, f" {glyphs.dot} ")
        second = printable(" ".join(self.snippet.split()) or details)
        return Content(f"{day}  ").stylize("$text-muted") + name + Content(f"\n  {second}").stylize("$text-muted")


class SessionList(OptionList):
    """Chats first, then single questions, each below its heading."""

    def __init__(self, glyphs: Glyphs, current: str) -> None:
        super().__init__(id="session-list", markup=False)
        self._glyphs, self._current = glyphs, current
        self.rows: list[SessionRow] = []

    @property
    def highlighted_row(self) -> SessionRow | None:
        option = self.highlighted_option
        return next((row for row in self.rows if option and row.id == option.id), None)

    def show(self, rows: Sequence[SessionRow]) -> None:
        """Show these rows; the highlight stays near its place."""
        self.rows = [row for kind in LISTED_KINDS for row in rows if row.kind == kind][:MAX_ROWS]
        highlighted, has_headings = self.highlighted or 0, any(row.kind == ASK for row in self.rows)
        self.clear_options()
        for kind in LISTED_KINDS:
            options = [
                Option(row.to_content(self._glyphs, is_current=row.id == self._current), id=row.id)
                for row in self.rows
                if row.kind == kind
            ]
            if options and has_headings:
                self.add_option(Option(Content(HEADINGS[kind]).stylize("$text-accent"), disabled=True))
            self.add_options(options)
        if self.rows:
            chosen = min(highlighted, self.option_count - 1)
            self.highlighted = chosen + self.get_option_at_index(chosen).disabled


class SessionsScreen(Screen[tuple[str, str] | None]):
    """The result is ("open" or "fork", session id), or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("up", "move(-1)", "up", show=False, priority=True),
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("ctrl+f", "choose('fork')", "open a copy", priority=True, id="list_fork"),
        Binding("f2", "rename", "rename", priority=True, id="list_rename"),
        Binding("ctrl+d", "delete", "delete", priority=True, id="list_delete"),
        Binding("ctrl+z", "undo", "undo", priority=True, id="list_undo"),
    ]
    session_list = getters.query_one(SessionList)

    def __init__(self, background_requests: BackgroundRequests, current: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._background_requests, self._current_session, self._glyphs = background_requests, current, glyphs
        self._all_rows: list[SessionRow] = []
        self._deleted_rows: list[SessionRow] = []

    def compose(self) -> ComposeResult:
        yield OwnLabel("conversations", id="sessions-title", markup=False)
        yield Input(placeholder="search names and contents", id="search", compact=True)
        yield Input(id="new-name", compact=True)
        with Horizontal():
            yield SessionList(self._glyphs, self._current_session)
            yield SessionPreview(self._background_requests, self._glyphs)
        yield OwnLabel(KEY_HINT, id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one("#new-name").display = False
        self.query_one("#search").focus()
        self._request_rows()

    @on(Input.Changed, "#search")
    def search(self, event: Input.Changed) -> None:
        """Filter names at once; the host searches the contents."""
        self.session_list.show([row for row in self._all_rows if row.matches(event.value)])
        if len(event.value.strip()) >= MIN_SEARCH_CHARS:
            receive = partial(self.receive_rows, event.value)
            self._background_requests.send("list_sessions", {"search": event.value}, self, receive)

    def receive_rows(self, requested_text: str, response: Json | SpecchatError) -> None:
        """Show the rows, unless the search text has changed since."""
        if isinstance(response, SpecchatError):
            self._show_hint(str(response))
            return
        rows = [from_json(SessionRow, row) for row in response.get("sessions", ())]
        search_text = self.query_one("#search", Input).value
        if not requested_text:
            self._all_rows = [row for row in rows if row.kind in LISTED_KINDS]
        if requested_text and requested_text != search_text:
            return
        matching = [row for row in self._all_rows if row.matches(search_text)]
        matching_ids = {row.id for row in matching}
        found = (row for row in rows if search_text and row.kind in LISTED_KINDS and row.id not in matching_ids)
        self.session_list.show([*matching, *found])

    @on(OptionList.OptionHighlighted)
    def request_preview(self) -> None:
        """Read the highlighted conversation, if the screen has room for a preview."""
        if (row := self.session_list.highlighted_row) and not self.has_class("-narrow"):
            self.query_one(SessionPreview).show_session(row.id)

    def on_resize(self) -> None:
        self.set_class(self.size.width < MIN_PREVIEW_COLUMNS, "-narrow")
        self.request_preview()

    @on(Input.Submitted, "#search")
    @on(OptionList.OptionSelected)
    def open_highlighted(self) -> None:
        self.action_choose("open")

    @on(Input.Submitted, "#new-name")
    def rename_highlighted(self, event: Input.Submitted) -> None:
        name, row = event.value.strip(), self.session_list.highlighted_row
        if name and row:
            self._change("rename", row, f"renamed to {name}", name=name)
        self._end_renaming()

    def action_choose(self, method: str) -> None:
        """Close once: a second key in the queue would close the screen below."""
        if self.is_current and (row := self.session_list.highlighted_row):
            self.dismiss((method, row.id))

    def action_back(self) -> None:
        if self.query_one("#new-name").display:
            self._end_renaming()
        elif self.is_current:
            self.dismiss(None)

    def action_move(self, step: int) -> None:
        if step < 0:
            self.session_list.action_cursor_up()
        else:
            self.session_list.action_cursor_down()

    def action_rename(self) -> None:
        if row := self.session_list.highlighted_row:
            name = self.query_one("#new-name", Input)
            name.value, name.display = row.name, True
            name.focus()
            self._show_hint("Enter renames, Esc cancels")

    def action_delete(self) -> None:
        row = self.session_list.highlighted_row
        if row is None:
            return
        if row.id == self._current_session:
            self._show_hint("this is the open conversation; use /delete")
            return
        self._deleted_rows.append(row)
        self._change("delete", row, f"deleted {row.name}; Ctrl+Z restores it")

    def action_undo(self) -> None:
        if self._deleted_rows:
            row = self._deleted_rows.pop()
            self._change("restore", row, f"restored {row.name}")

    def _change(self, method: str, row: SessionRow, notice: str, **params: Any) -> None:
        def finish(response: Json | SpecchatError) -> None:
            self._show_hint(str(response) if isinstance(response, SpecchatError) else notice)
            self._request_rows()

        self._background_requests.send(method, {"session": row.id, **params}, self, finish)

    def _request_rows(self) -> None:
        self._background_requests.send("list_sessions", {}, self, partial(self.receive_rows, ""))

    def _end_renaming(self) -> None:
        self.query_one("#new-name").display = False
        self.query_one("#search").focus()
        self._show_hint("")

    def _show_hint(self, text: str) -> None:
        self.query_one("#hint", Static).update(printable(f"{text}\n{KEY_HINT}" if text else KEY_HINT))
