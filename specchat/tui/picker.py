"""A list in place of the prompt: type to filter, Enter picks, Escape cancels.

The lists are drafters, models, profiles, themes, earlier prompts, and what to do when the engine is lost.
"""

from collections.abc import Collection, Sequence
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

from specchat.app.chat_settings import choice_text
from specchat.drawing.glyphs import printable
from specchat.errors import SpecchatError
from specchat.hub.runnable_models import LocalChoice
from specchat.profile import all_drafters, load_profile, profile_names
from specchat.tui.turn_widget import QuestionRef

MAX_ROW_CHARS = 300
GRACE_SECONDS = 1.0  # for pickers that open by themselves: keys meant for the prompt must not answer


@dataclass(frozen=True)
class PickerRow:
    value: str
    label: str
    help: str = ""
    is_disabled: bool = False  # shown with its reason, and cannot be picked


class Picker(Vertical):
    """`purpose` names the list in the messages to the screen."""

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
        self._highlight_first()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        rows = self.query_one(OptionList)
        rows.clear_options()
        rows.add_options(self._matching_options(event.value))
        self._highlight_first()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        rows = self.query_one(OptionList)
        if rows.highlighted is not None:
            self._choose(rows.get_option_at_index(rows.highlighted).id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option.id)

    def action_move(self, step: int) -> None:
        """Highlight the next row that can be picked."""
        rows = self.query_one(OptionList)
        enabled = [number for number, option in enumerate(rows.options) if not option.disabled]
        if enabled:
            current = enabled.index(rows.highlighted) if rows.highlighted in enabled else 0
            rows.highlighted = enabled[(current + step) % len(enabled)]

    def _highlight_first(self) -> None:
        rows = self.query_one(OptionList)
        rows.highlighted = next((number for number, each in enumerate(rows.options) if not each.disabled), None)

    def action_cancel(self) -> None:
        self.post_message(self.Cancelled())

    def _choose(self, id: str | None) -> None:
        if id is not None and monotonic() >= self._ignore_keys_until:
            self.post_message(self.Picked(self.purpose, self._rows[int(id)].value))

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
    return shown + Content(f"  {printable(help)}").stylize("$text-muted") if help else shown


def make_picker(
    purpose: str, history: Sequence[str], questions: Sequence[QuestionRef], themes: Sequence[str]
) -> Picker | None:
    """The picker for this purpose: `history` has prompts of all conversations, `questions` those of this one."""
    match purpose:
        case "profile":
            rows, title = [_profile_row(name) for name in profile_names()], "profile, from the next request on"
        case "theme":
            rows, title = [PickerRow(name, name) for name in themes], "colours"
        case "question":
            rows, title = [PickerRow(question, question) for question in reversed(history)], "earlier prompts"
        case "rewind":
            rows = [PickerRow(str(each.position), each.text) for each in reversed(questions)]
            title = "edit a request of this conversation; the old version stays"
        case _:
            raise AssertionError(purpose)
    return Picker(purpose, title, rows) if rows else None


def variant_picker(available: Collection[str] | None) -> Picker:
    """The drafters: those that can run first, then the others with what they need; None: that is not known yet."""
    rows: list[PickerRow] = []
    for name, drafter in all_drafters().items():
        can_run = available is None or name in available
        reason = f"cannot run: needs {drafter.needs}" if drafter.needs else "cannot run with this model"
        rows.append(PickerRow(name, name, drafter.description if can_run else reason, is_disabled=not can_run))
    title = "drafter, from the next request on"
    unknown = "; the models are not loaded, so some may not run" if available is None else ""
    return Picker("variant", title + unknown, sorted(rows, key=lambda row: row.is_disabled))


def model_picker(choices: Sequence[LocalChoice], current: str) -> Picker:
    """The models on this disk, those that fit first; "default" is the one of the profile."""
    rows = [
        PickerRow(each.name, each.name, f"{choice_text(each)}{' (now)' if each.name == current else ''}", not each.fits)
        for each in sorted(choices, key=lambda each: not each.fits)
    ]
    rows.append(PickerRow("default", "default", "the model of the profile"))
    return Picker("model", "model, from the next request on; it reads the conversation again", rows)


def retry_picker(reason: str) -> Picker:
    rows = [PickerRow("retry", "send the request again"), PickerRow("cancel", "keep the partial answer")]
    return Picker("retry", reason, rows, grace_seconds=GRACE_SECONDS)


def engine_lost_picker(reason: str) -> Picker:
    rows = [PickerRow("connect", "restart the engine"), PickerRow("quit", "quit; the conversation is stored")]
    return Picker("engine_lost", f"no engine: {reason}", rows, grace_seconds=GRACE_SECONDS)


def leave_picker(count: int) -> Picker:
    rows = [PickerRow("stay", "stay and wait for the answers"), PickerRow("leave", "quit; the answer so far is stored")]
    questions = "a question waits" if count == 1 else f"{count} questions wait"
    opened = Picker("leave", f"{questions} to be answered; quit without it?", rows, grace_seconds=0.0)
    return opened.add_class("leave")


def _profile_row(name: str) -> PickerRow:
    try:
        return PickerRow(name, name, load_profile(name).description)
    except SpecchatError as error:
        return PickerRow(name, name, f"cannot be used: {error}")
