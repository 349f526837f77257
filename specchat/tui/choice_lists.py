"""The pickers that replace the prompt: drafter, profile, theme, earlier prompts. None where the list is empty."""

from __future__ import annotations

from collections.abc import Sequence

from specchat.errors import SpecchatError
from specchat.profile import all_drafters, load_profile, profile_names
from specchat.tui.picker import Picker, PickerRow
from specchat.tui.turn_widget import QuestionRef

GRACE_SECONDS = 1.0  # for pickers that open by themselves: keys meant for the prompt must not answer


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
