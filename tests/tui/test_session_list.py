"""The list of conversations."""

from __future__ import annotations

import pytest

from specchat.chat.request import Request
from specchat.host.client import Conversation, SessionRequest

pytestmark = pytest.mark.usefixtures("runtime")


def said(*questions: str) -> str:
    """A conversation of before; its id."""
    with Conversation(SessionRequest(profile="chat")) as talk:
        for question in questions:
            list(talk.ask(Request(question)))
        return talk.session_id


async def listed(seat, count: int):
    await seat.press("ctrl+r")
    await seat.until(lambda: type(seat.app.screen).__name__ == "SessionsScreen" and len(seat.app.screen._all) == count)
    return seat.app.screen


def test_a_conversation_is_gone_on_with(take_seat):
    said("count 3", "write more")

    async def scenario(seat):
        await listed(seat, 1)
        await seat.press("enter")
        await seat.until(lambda: len(seat.turns) == 2)

        assert "turn 2" in (await seat.ask("count 1")).answer

    take_seat(scenario)


@pytest.mark.full
def test_a_wide_screen_shows_what_the_marked_conversation_was_about(take_seat):
    said("write first")
    said("count 2", "write ```\n[bold]second\n```")

    async def scenario(seat):
        screen = await listed(seat, 2)
        await seat.sees("│  › write ```")
        await seat.sees("  [bold]second")
        assert "word0" not in seat.shown
        await seat.press("down")
        await seat.sees("│  › write first")
        assert "[bold]second" not in seat.shown

        await seat.pilot.resize_terminal(80, 24)
        await seat.until(lambda: "│  ›" not in seat.shown)
        await seat.press("up")
        await seat.pilot.resize_terminal(120, 24)
        await seat.sees("│  › write ```")
        assert 0 == screen.query_one("#sessions").highlighted

    take_seat(scenario, size=(120, 24))


@pytest.mark.full
def test_a_conversation_without_questions_says_so(take_seat):
    async def scenario(seat):
        await seat.ask("count 1")
        seat.app.errands._last_turn = lambda _session: None
        await listed(seat, 1)
        await seat.sees("nothing was said yet")

    take_seat(scenario, size=(120, 24))


@pytest.mark.full
@pytest.mark.parametrize("leave", [lambda screen: screen.action_back(), lambda screen: screen.action_choose("open")])
def test_a_key_that_is_pressed_twice_leaves_the_list_once(take_seat, leave):
    said("count 3")

    async def scenario(seat):
        screen = await listed(seat, 1)
        screen.call_later(lambda: (leave(screen), leave(screen)))
        await seat.until(lambda: seat.app.screen is not screen)
        await seat.pilot.pause()

        assert seat.app.screen is seat.chat

    take_seat(scenario)


def test_the_last_one_is_gone_on_with_from_the_command_line(take_seat):
    said("count 3")

    async def scenario(seat):
        assert ["count 3"] == [turn.question for turn in seat.turns]
        await seat.sees("stop: end")

    take_seat(scenario, wish=SessionRequest(continues_last=True))


@pytest.mark.full
def test_words_that_were_said_are_found(take_seat):
    said("count 3")
    said("write needle")

    async def scenario(seat):
        screen = await listed(seat, 2)
        await seat.press(*"needle")
        await seat.until(lambda: len(screen._rows) == 1)
        await seat.press("ctrl+f")
        await seat.until(lambda: len(seat.turns) == 1 and seat.turns[0].is_settled)

        assert "needle" == seat.turns[0].answer

    take_seat(scenario)


def test_a_conversation_is_renamed_deleted_and_brought_back(take_seat):
    session = said("count 3")

    async def scenario(seat):
        screen = await listed(seat, 1)
        await seat.press("f2", "ctrl+u", *"other", "enter")
        await seat.until(lambda: screen._all and screen._all[0].name == "other")
        await seat.press("ctrl+d")
        await seat.until(lambda: not screen._rows)
        await seat.press("ctrl+z")
        await seat.until(lambda: [row.id for row in screen._rows] == [session])
        await seat.press("escape")
        await seat.until(lambda: seat.app.screen is seat.chat)

    take_seat(scenario)


@pytest.mark.full
def test_the_conversation_on_the_screen_is_not_deleted_behind_it(take_seat):
    async def scenario(seat):
        await seat.ask("count 1")
        await listed(seat, 1)
        await seat.press("ctrl+d")
        await seat.sees("/delete takes it away")

    take_seat(scenario)


@pytest.mark.full
def test_the_list_can_be_looked_at_while_an_answer_is_written(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        await listed(seat, 1)
        await seat.press("escape")
        await seat.until(lambda: seat.app.screen is seat.chat)
        await seat.press("escape")
        await seat.until(lambda: seat.turns[-1].is_over)

    take_seat(scenario)


@pytest.mark.full
def test_the_commands_of_the_line_mode_work_here_too(take_seat):
    async def scenario(seat):
        await seat.ask("count 1")
        await seat.say("/rename my talk")
        await seat.until(lambda: "my talk" in seat.shown.splitlines()[0])
        await seat.say("/back")
        await seat.sees("taken back: count 1")
        assert [] == seat.turns
        await seat.say("/new")
        await seat.sees("a new conversation")
        await seat.say("/nonsense")
        await seat.sees("unknown command /nonsense")

    take_seat(scenario)
