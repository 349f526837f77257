"""The lists that take the place of the prompt: who guesses, which profile, which colours, what was asked before.

Strings in, pickers out; None where there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Sequence

from specchat.errors import SpecchatError
from specchat.profile import every_guesser, load_profile, profile_names
from specchat.tui.picker import Picker, Row
from specchat.tui.turn_widget import Asked

GRACE_SECONDS = 1.0  # for choices that appear by themselves: what is being typed must not answer them


def picker(what: str, past: Sequence[str], asked: Sequence[Asked], themes: Sequence[str]) -> Picker | None:
    """The list of this name: `past` are questions of every conversation, `asked` those of this one."""
    match what:
        case "variant":
            rows = [Row(name, name, guesser.what) for name, guesser in every_guesser().items()]
            title = "who guesses, from the next question on"
        case "profile":
            rows, title = [_profile_row(name) for name in profile_names()], "profile, from the next question on"
        case "theme":
            rows, title = [Row(name, name) for name in themes], "colours"
        case "question":
            rows, title = [Row(question, question) for question in reversed(past)], "earlier questions"
        case "rewind":
            rows = [_rewind_row(each, len(asked)) for each in reversed(asked)]
            title = "back to a question of this conversation, to ask it in other words"
        case _:
            raise AssertionError(what)
    return Picker(what, title, rows) if rows else None


def again_picker(reason: str) -> Picker:
    """An answer broke off."""
    rows = [Row("again", "ask the question again"), Row("leave", "leave it as it is")]
    return Picker("again", reason, rows, grace=GRACE_SECONDS)


def lost_picker(reason: str) -> Picker:
    """No engine."""
    rows = [Row("connect", "start the engine again"), Row("quit", "leave; everything is kept")]
    return Picker("lost", f"no engine: {reason}", rows, grace=GRACE_SECONDS)


def _rewind_row(asked: Asked, count: int) -> Row:
    is_last = asked.position == count - 1
    return Row(str(asked.position), asked.question, "replaces it" if is_last else "goes on in a copy")


def _profile_row(name: str) -> Row:
    try:
        return Row(name, name, load_profile(name).description)
    except SpecchatError as error:
        return Row(name, name, f"cannot be used: {error}")
