"""A list in place of the prompt: type to filter, Enter picks, Escape cancels.

The lists are drafters, profiles, themes, earlier prompts, and what to do when the engine is lost.
"""

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

from specchat.drawing.glyphs import printable
from specchat.errors import SpecchatError
from specchat.profile import all_drafters, load_profile, profile_names
from specchat.tui.turn_widget import QuestionRef

MAX_ROW_CHARS = 300
GRACE_SECONDS = 1.0  # for pickers that open by themselves: keys meant for the prompt must not answer


@dataclass(frozen=True)
class PickerRow:
    value: str
    label: str
    help: str = ""


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
            Option(option_content(" ".join(row.label.split())[:MAX_ROW_CHARS], row.help), id=str(number))
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
        case "variant":
            rows = [PickerRow(name, name, drafter.description) for name, drafter in all_drafters().items()]
            title = "drafter, from the next request on"
        case "profile":
            rows, title = [_profile_row(name) for name in profile_names()], "profile, from the next request on"
        case "theme":
            rows, title = [PickerRow(name, name) for name in themes], "colours"
        case "question":
            rows, title = [PickerRow(question, question) for question in reversed(history)], "earlier prompts"
        case "rewind":
            rows = [_rewind_row(each, len(questions)) for each in reversed(questions)]
            title = "reword a request of this conversation"
        case _:
            raise AssertionError(purpose)
    return Picker(purpose, title, rows) if rows else None


def retry_picker(reason: str) -> Picker:
    rows = [PickerRow("retry", "send the request again"), PickerRow("cancel", "keep the partial answer")]
    return Picker("retry", reason, rows, grace_seconds=GRACE_SECONDS)


def engine_lost_picker(reason: str) -> Picker:
    rows = [PickerRow("connect", "restart the engine"), PickerRow("quit", "quit; the conversation is stored")]
    return Picker("engine_lost", f"no engine: {reason}", rows, grace_seconds=GRACE_SECONDS)


def _rewind_row(question: QuestionRef, count: int) -> PickerRow:
    is_last = question.position == count - 1
    return PickerRow(str(question.position), question.text, "replaces it" if is_last else "continues in a copy")


def _profile_row(name: str) -> PickerRow:
    try:
        return PickerRow(name, name, load_profile(name).description)
    except SpecchatError as error:
        return PickerRow(name, name, f"cannot be used: {error}")
