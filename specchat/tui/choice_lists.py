"""The lists that take the place of the prompt: who guesses, which profile, which colours, what was asked before.

Strings in, pickers out; None where there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Sequence

from specchat.errors import SpecchatError
from specchat.profile import all_drafters, load_profile, profile_names
from specchat.tui.picker import Picker, PickerRow
from specchat.tui.turn_widget import QuestionRef

GRACE_SECONDS = 1.0  # for choices that appear by themselves: what is being typed must not answer them


def make_picker(
    purpose: str, history: Sequence[str], questions: Sequence[QuestionRef], themes: Sequence[str]
) -> Picker | None:
    """The list of this name: `past` are questions of every conversation, `asked` those of this one."""
    match purpose:
        case "variant":
            rows = [PickerRow(name, name, guesser.description) for name, guesser in all_drafters().items()]
            title = "who guesses, from the next question on"
        case "profile":
            rows, title = [_profile_row(name) for name in profile_names()], "profile, from the next question on"
        case "theme":
            rows, title = [PickerRow(name, name) for name in themes], "colours"
        case "question":
            rows, title = [PickerRow(question, question) for question in reversed(history)], "earlier questions"
        case "rewind":
            rows = [_rewind_row(each, len(questions)) for each in reversed(questions)]
            title = "back to a question of this conversation, to ask it in other words"
        case _:
            raise AssertionError(purpose)
    return Picker(purpose, title, rows) if rows else None


def retry_picker(reason: str) -> Picker:
    """An answer broke off."""
    rows = [PickerRow("again", "ask the question again"), PickerRow("leave", "leave it as it is")]
    return Picker("again", reason, rows, grace_seconds=GRACE_SECONDS)


def engine_lost_picker(reason: str) -> Picker:
    """No engine."""
    rows = [PickerRow("connect", "start the engine again"), PickerRow("quit", "leave; everything is kept")]
    return Picker("lost", f"no engine: {reason}", rows, grace_seconds=GRACE_SECONDS)


def _rewind_row(asked: QuestionRef, count: int) -> PickerRow:
    is_last = asked.position == count - 1
    return PickerRow(str(asked.position), asked.text, "replaces it" if is_last else "goes on in a copy")


def _profile_row(name: str) -> PickerRow:
    try:
        return PickerRow(name, name, load_profile(name).description)
    except SpecchatError as error:
        return PickerRow(name, name, f"cannot be used: {error}")
