"""What the screen says after an answer, in a dim line of its own: who guesses now, and that the context is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from specchat.chat.events import Event, StepDone
from specchat.host.client import Conversation, SessionRequest


@pytest.fixture
def guessed_by(monkeypatch):
    """Let the guesses of the next answers be somebody's."""
    asked = Conversation.ask

    def choose(who: str) -> None:
        def ask(conversation, request, cancelled=None) -> Iterator[Event]:
            for event in asked(conversation, request, cancelled):
                yield replace(event, sources=(who,) * len(event.draft_tokens)) if isinstance(event, StepDone) else event

        monkeypatch.setattr(Conversation, "ask", ask)

    return choose


def notes(seat) -> list[str]:
    return [str(note.render()) for note in seat.chat.query(".note")]


def test_a_change_of_who_guesses_is_noted_once(take_seat, guessed_by):
    async def scenario(seat):
        await seat.ask("count 20")
        guessed_by("draft")
        await seat.ask("count 20")
        assert ["draft guesses now, lookup did before: in 20 of 20 steps"] == notes(seat)
        await seat.ask("count 20")

        assert 1 == len(notes(seat))

    take_seat(scenario)


@pytest.mark.full
def test_the_note_stands_under_the_answer_that_brought_the_change(take_seat, guessed_by):
    async def scenario(seat):
        await seat.ask("count 20")
        guessed_by("suffix")
        await seat.ask("write short")
        await seat.ask("count 20")
        await seat.ask("write last")

        blocks = [type(block).__name__ for block in seat.chat.transcript.children if block.display]
        assert ["TurnView", "TurnView", "TurnView", "Static", "TurnView"] == blocks

    take_seat(scenario)


@pytest.mark.full
def test_a_context_that_is_all_but_full_brings_one_line(take_seat):
    async def scenario(seat):
        await seat.ask("count 236")
        assert ["the context is 93% full; /compact sums this conversation up and goes on in a copy"] == notes(seat)

    take_seat(scenario, wish=SessionRequest(profile="narrow"))
