"""The edit command with a scripted model."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from specchat.chat.events import Event
from specchat.edit.answer_blocks import choose_text
from specchat.edit.answer_check import check_chosen_text
from specchat.edit.source_text import Source
from tests.front import Ran, command
from tests.scripted_session import ScriptedSession, play_host, scripted_answer

CODE = """\
import os

# Where the counting begins.
START = 1


def count(limit):
    for number in range(START, limit):
        yield number


def total(limit):
    return sum(count(limit))
"""
NEW = CODE.replace("count(", "numbers(")


@dataclass
class Said:
    """What became of the command, and what the model was asked."""

    ran: Ran
    session: ScriptedSession

    @property
    def asked(self) -> list[str]:
        return [request.text for request in self.session.requests]


def new_text(source: Source, answer: str, instruction: str = "", **how: bool) -> str:
    """The new text in an answer."""
    return check_chosen_text(source, choose_text(source, answer), instruction, **how)


def answers(*texts: str, reason: str = "stop") -> list[list[Event]]:
    """One scene for each text, in two words."""
    return [scripted_answer([text[:5], text[5:]], reason) for text in texts]


def say(
    patch: pytest.MonkeyPatch, script: list[list[Event]], *arguments: str, stdin: bytes = b"", on_terminal: bool = False
) -> Said:
    """`specchat edit` with these arguments; the model plays the script, a scene for each question."""
    session = ScriptedSession(script)
    with patch.context() as inner:
        play_host(inner, lambda _profile: session)
        return Said(command(patch, "edit", *arguments, stdin=stdin, on_terminal=on_terminal), session)
