"""The lists that take the place of the prompt: who guesses, which profile, which colours, what was asked before."""

from __future__ import annotations

from collections.abc import Sequence

from specchat.errors import SpecchatError
from specchat.profile import VARIANTS, load_profile, profile_names
from specchat.tui.picker import Picker, Row

GUESSERS = {
    "auto": "repeats are copied, the small model guesses the rest",
    "plain": "nobody: one token a pass",
    "lookup": "repeats of the text are copied",
    "draft": "a small model",
}
GRACE_SECONDS = 1.0  # for choices that appear by themselves: what is being typed must not answer them


def variant_picker() -> Picker:
    """Who guesses in the next answers."""
    rows = [Row(variant, variant, GUESSERS.get(variant, "")) for variant in VARIANTS]
    return Picker("variant", "who guesses, from the next question on", rows)


def profile_picker() -> Picker:
    """Another profile."""
    return Picker("profile", "profile, from the next question on", [_profile_row(name) for name in profile_names()])


def theme_picker(names: Sequence[str]) -> Picker:
    """Other colours."""
    return Picker("theme", "colours", [Row(name, name) for name in names])


def question_picker(past: Sequence[str]) -> Picker:
    """What was asked before, the newest first."""
    return Picker("question", "earlier questions", [Row(question, question) for question in reversed(past)])


def again_picker(reason: str) -> Picker:
    """An answer broke off."""
    rows = [Row("again", "ask the question again"), Row("leave", "leave it as it is")]
    return Picker("again", reason, rows, grace=GRACE_SECONDS)


def lost_picker(reason: str) -> Picker:
    """No engine."""
    rows = [Row("connect", "start the engine again"), Row("quit", "leave; everything is kept")]
    return Picker("lost", f"no engine: {reason}", rows, grace=GRACE_SECONDS)


def _profile_row(name: str) -> Row:
    try:
        return Row(name, name, load_profile(name).description)
    except SpecchatError as error:
        return Row(name, name, f"cannot be used: {error}")
