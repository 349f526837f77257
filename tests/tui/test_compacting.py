"""`/compact` on the screen: the summary streams, and the conversation goes on in a copy that begins with it."""

from __future__ import annotations

import pytest

from specchat.commands import compact as compacting
from specchat.host.client import SessionRequest


def notes(seat) -> list[str]:
    return [str(note.render()) for note in seat.chat.query(".note")]


def test_a_conversation_that_is_all_but_full_goes_on_in_a_copy_that_begins_with_a_summary(take_seat):
    async def scenario(seat):
        await seat.ask("count 236")
        whole = seat.chat.hearing.session
        assert ["the context is 93% full; /compact sums this conversation up and goes on in a copy"] == notes(seat)
        await seat.say("/compact")
        await seat.until(lambda: any("this copy begins with the summary" in note for note in notes(seat)))

        assert [turn.question[:20] for turn in seat.turns] == [compacting.CONTINUE_PROMPT[:20]]
        assert f"/open {whole} is the whole conversation" in notes(seat)[-1]
        assert whole != seat.chat.hearing.session
        await seat.ask("write third")
        assert [0, 1] == [turn.position for turn in seat.turns]

    take_seat(scenario, wish=SessionRequest(profile="narrow"))


@pytest.mark.full
def test_escape_stops_the_summary_and_the_conversation_goes_on_as_it_was(take_seat, monkeypatch):
    monkeypatch.setattr(compacting, "QUESTION", "slowly 100000")

    async def scenario(seat):
        await seat.ask("write first")
        whole = seat.chat.hearing.session
        await seat.say("/compact")
        await seat.sees("word9 ")
        assert whole != seat.chat.hearing.session
        await seat.press("escape")
        await seat.until(lambda: any("there is no summary" in note for note in notes(seat)))

        assert whole == seat.chat.hearing.session
        assert ["write first"] == [turn.question for turn in seat.turns]
        assert (await seat.ask("write second")).position == 1

    take_seat(scenario)


@pytest.mark.full
def test_what_is_asked_meanwhile_is_asked_in_the_copy(take_seat, monkeypatch):
    monkeypatch.setattr(compacting, "QUESTION", "slowly 60")

    async def scenario(seat):
        await seat.ask("write first")
        await seat.say("/compact")
        await seat.sees("word3 ")
        await seat.say("write next")
        await seat.until(lambda: seat.turns and seat.turns[-1].answer == "next" and seat.turns[-1].is_over)

        assert [compacting.CONTINUE_PROMPT[:20], "write next"] == [turn.question[:20] for turn in seat.turns]
        assert [0, 1] == [turn.position for turn in seat.turns]

    take_seat(scenario)


@pytest.mark.full
def test_it_is_offered_with_the_other_commands(take_seat):
    async def scenario(seat):
        await seat.press("slash", *"comp")
        await seat.sees("/compact")

    take_seat(scenario)
