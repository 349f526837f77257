"""A list in place of the prompt: type to filter, Enter picks, Escape cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specchat.tui.glyphs import printable

MAX_ROW_CHARS = 300


@dataclass(frozen=True)
class PickerRow:
    value: str
    label: str
    help: str = ""


class Picker(Vertical):
    """`purpose` names the list in the messages to the screen."""

    HELP = "Type to filter the list. Enter picks the highlighted row, Escape cancels."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("escape", "cancel", "back"),
    ]

    @dataclass
    class Picked(Message):
        """The user picked a row."""

        purpose: str
        value: str

    class Cancelled(Message):
        """The user closed the list."""

    def __init__(self, purpose: str, title: str, rows: Sequence[PickerRow], grace_seconds: float = 0.0) -> None:
        super().__init__(id="picker")
        self.purpose = purpose
        self._title, self._rows = printable(title), list(rows)
        self._ignore_keys_until = monotonic() + grace_seconds

    def compose(self) -> ComposeResult:
        yield Static(self._title, classes="title", markup=False)
        yield OptionList(*self._matching_options(""), markup=False)
        yield Input(placeholder="type to filter", compact=True)

    def on_mount(self) -> None:
        self.screen.set_focus(self.query_one(Input))
        self.query_one(OptionList).highlighted = 0 if self._rows else None

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        rows = self.query_one(OptionList)
        rows.clear_options()
        rows.add_options(self._matching_options(event.value))
        rows.highlighted = 0 if rows.option_count else None

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        rows = self.query_one(OptionList)
        if rows.highlighted is not None:
            self._choose(rows.get_option_at_index(rows.highlighted).id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option.id)

    def action_move(self, step: int) -> None:
        rows = self.query_one(OptionList)
        if rows.option_count:
            rows.highlighted = ((rows.highlighted or 0) + step) % rows.option_count

    def action_cancel(self) -> None:
        self.post_message(self.Cancelled())

    def _choose(self, id: str | None) -> None:
        if id is not None and monotonic() >= self._ignore_keys_until:
            self.post_message(self.Picked(self.purpose, self._rows[int(id)].value))

    def _matching_options(self, typed: str) -> list[Option]:
        words = typed.lower().split()
        return [
            Option(_row_content(row), id=str(number))
            for number, row in enumerate(self._rows)
            if all(word in f"{row.label} {row.help}".lower() for word in words)
        ]


def _row_content(row: PickerRow) -> Content:
    shown = Content(printable(" ".join(row.label.split())[:MAX_ROW_CHARS]))
    return shown + Content(f"  {printable(row.help)}").stylize("$text-muted") if row.help else shown
