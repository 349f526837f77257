"""A list in place of the prompt: type to filter, Enter picks, Escape cancels. And the rows of the longer lists.

`picker_controller.py` has the lists, and what a picked row does.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.app.chat_settings import choice_text
from specchat.drawing.glyphs import printable
from specchat.errors import SpecchatError
from specchat.hub.runnable_models import LocalChoice
from specchat.own_text import translated
from specchat.profile.drafter_names import all_drafters
from specchat.profile.profile_files import load_profile, profile_names
from specchat.tui.own_label import OwnLabel

MAX_ROW_CHARS = 300
GRACE_SECONDS = 1.0  # for pickers that open by themselves: keys meant for the prompt must not answer


@dataclass(frozen=True)
class PickerRow:
    value: str
    label: str
    help: str = ""
    is_disabled: bool = False  # shown with its reason, and cannot be picked


class Picker(Vertical):
    """`on_picked` gets the value of the picked row, as a message of the screen. Escape is a key of the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
    ]

    def __init__(
        self, title: str, rows: Sequence[PickerRow], on_picked: Callable[[str], object], grace_seconds: float = 0.0
    ) -> None:
        super().__init__(id="picker")
        self._on_picked = on_picked
        self._title, self._rows = printable(title), list(rows)
        self._ignore_keys_until = monotonic() + grace_seconds

    def compose(self) -> ComposeResult:
        yield OwnLabel(self._title, classes="title", markup=False)
        yield OptionList(*self._matching_options(""), markup=False)
        yield Input(placeholder=translated("type to filter"), compact=True)

    def on_mount(self) -> None:
        self.screen.set_focus(self.query_one(Input))
        self.query_one(OptionList).action_first()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        rows = self.query_one(OptionList)
        rows.clear_options()
        rows.add_options(self._matching_options(event.value))
        rows.action_first()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(OptionList).action_select()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id and monotonic() >= self._ignore_keys_until:
            self.screen.call_later(self._on_picked, self._rows[int(event.option.id)].value)

    def action_move(self, step: int) -> None:
        """Highlight the next row that can be picked."""
        rows = self.query_one(OptionList)
        (rows.action_cursor_up if step < 0 else rows.action_cursor_down)()

    def _matching_options(self, typed: str) -> list[Option]:
        words = typed.lower().split()
        return [
            Option(
                option_content(" ".join(row.label.split())[:MAX_ROW_CHARS], row.help),
                id=str(number),
                disabled=row.is_disabled,
            )
            for number, row in enumerate(self._rows)
            if all(word in f"{row.label} {row.help}".lower() for word in words)
        ]


def option_content(label: str, help: str) -> Content:
    shown = Content(printable(label))
    return shown + Content(f"  {printable(translated(help))}").stylize("$text-muted") if help else shown


def profile_rows() -> list[PickerRow]:
    return [PickerRow(name, name, _profile_help(name)) for name in profile_names()]


def _profile_help(name: str) -> str:
    try:
        return load_profile(name).description
    except SpecchatError as error:
        return f"cannot be used: {error}"


def variant_rows(available: Collection[str] | None) -> list[PickerRow]:
    """The drafters: those that can run first, then the others with what they need; None: that is not known yet."""
    rows: list[PickerRow] = []
    for name, drafter in all_drafters().items():
        can_run = available is None or name in available
        reason = f"cannot run: needs {drafter.needs}" if drafter.needs else "cannot run with this model"
        rows.append(PickerRow(name, name, drafter.description if can_run else reason, is_disabled=not can_run))
    return sorted(rows, key=lambda row: row.is_disabled)


def model_rows(choices: Sequence[LocalChoice], current: str) -> list[PickerRow]:
    """The models on this disk, those that fit first; "default" is the one of the profile."""
    rows = [
        PickerRow(each.name, each.name, f"{choice_text(each)}{' (now)' if each.name == current else ''}", not each.fits)
        for each in sorted(choices, key=lambda each: not each.fits)
    ]
    return [*rows, PickerRow("default", "default", "the model of the profile")]
