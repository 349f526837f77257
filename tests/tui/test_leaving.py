"""Somebody leaves while something is still being drawn: no traceback, and no error of a living screen is hidden."""

from __future__ import annotations

import asyncio

import pytest
from textual.widget import MountError

from specchat.chat.events import Finished, TextDelta, Totals
from specchat.chat.history import StoredAnswer, StoredTurn
from specchat.chat.request import Request
from specchat.tui.conversation_presenter import ConversationPresenter, EngineUnavailable
from specchat.tui.markdown_answer import MarkdownAnswer
from specchat.tui.picker import Picker
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import TurnView
from specchat.tui.worker_messages import AnswerEnded, ConversationOpened, RequestSent, TranscriptNote

pytestmark = pytest.mark.full

STEPS = [
    (Transcript, "show"),
    (Transcript, "_mount_stored"),
    (TurnView, "show_stored"),
    (TurnView, "finish"),
    (MarkdownAnswer, "update"),
]


def stored(count: int) -> tuple[StoredTurn, ...]:
    return tuple(
        StoredTurn(f"turn{n}", None, {"text": f"question {n}"}, StoredAnswer(f"answer {n}"), "stop", {}, 0.0, 0.0)
        for n in range(count)
    )


def conversation(count: int = 3) -> ConversationOpened:
    return ConversationOpened("other", "a talk", "chat", stored(count))


@pytest.fixture
def during(monkeypatch):
    """Let something happen in the middle of a step, once; the returned flag is raised as it begins."""

    def interrupt(owner, name, happen) -> asyncio.Event:
        begun, original = asyncio.Event(), getattr(owner, name)

        async def interrupted(*arguments, **names):
            if not begun.is_set():
                begun.set()
                await happen()
            return await original(*arguments, **names)

        monkeypatch.setattr(owner, name, interrupted)
        return begun

    return interrupt


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda part: getattr(part, "__name__", part))
def test_a_person_may_leave_while_a_conversation_is_opened(take_seat, during, owner, name):
    async def scenario(seat):
        async def leave():
            seat.app.exit()

        during(owner, name, leave)
        seat.app.mailbox.put(conversation())
        await seat.until(lambda: not seat.app.is_running)

        assert 0 == seat.app.return_code

    take_seat(scenario)


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda part: getattr(part, "__name__", part))
def test_the_screen_may_be_taken_away_while_a_conversation_is_opened(take_seat, during, owner, name):
    async def scenario(seat):
        async def go_on_when_it_is_gone():
            while seat.app.is_running:  # noqa: ASYNC110 (the very moment counts)
                await asyncio.sleep(0)

        begun = during(owner, name, go_on_when_it_is_gone)
        seat.app.mailbox.put(conversation())
        await asyncio.wait_for(begun.wait(), 60)

    take_seat(scenario)


def test_an_error_of_a_living_screen_is_not_hidden(take_seat, monkeypatch):
    def cannot_be_drawn(*_arguments):
        raise MountError("not here")

    async def scenario(seat):
        monkeypatch.setattr(ConversationPresenter, "_show_title", cannot_be_drawn)
        seat.app.mailbox.put(conversation())
        await seat.until(lambda: not seat.app.is_running)

    with pytest.raises(MountError, match="not here"):
        take_seat(scenario)


def test_older_turns_and_another_conversation_do_not_get_in_each_others_way(take_seat, during):
    async def scenario(seat):
        seat.app.mailbox.put(conversation(40))
        await seat.sees("question 39")
        shown = asyncio.Event()
        begun = during(Transcript, "_mount_stored", shown.wait)
        older = asyncio.create_task(seat.app.run_action("screen.show_older"))
        await asyncio.wait_for(begun.wait(), 60)
        seat.app.mailbox.put(ConversationOpened("third", "another", "chat", stored(2)))
        await asyncio.sleep(0.2)
        shown.set()
        await older
        await seat.until(lambda: seat.chat.hearing.session == "third" and len(seat.turns) == 2)
        await seat.pilot.pause()

        assert ["question 0", "question 1"] == [turn.question for turn in seat.turns]
        assert "earlier question" not in seat.shown

    take_seat(scenario)


def test_an_answer_stands_under_its_question_also_when_another_was_shown_before(take_seat):
    async def scenario(seat):
        await seat.chat.hearing.begin("second")  # typed while "/retry" was on its way
        for text in ("first", "second"):
            seat.app.mailbox.put(RequestSent(Request(text)))
            seat.app.mailbox.put(TextDelta(f"of the {text}"))
            seat.app.mailbox.put(Finished("stop", Totals()))
            seat.app.mailbox.put(AnswerEnded(is_stored=True))
        await seat.until(lambda: len(seat.turns) == 2 and seat.turns[-1].is_over)

        assert [("first", "of the first"), ("second", "of the second")] == [
            (turn.question, turn.answer) for turn in seat.turns
        ]
        assert [0, 1] == [turn.position for turn in seat.turns]

    take_seat(scenario)


def test_a_list_of_questions_may_be_older_than_the_conversation(take_seat):
    async def scenario(seat):
        seat.app.mailbox.put(conversation(3))
        await seat.sees("question 2")
        await seat.press("escape", "escape")
        await seat.sees("back to a question")
        seat.app.mailbox.put(ConversationOpened("third", "another", "chat", ()))
        await seat.until(lambda: seat.chat.hearing.session == "third")
        await seat.press("enter")
        await seat.until(lambda: not seat.chat.query(Picker))

        assert "" == seat.prompt.text

    take_seat(scenario)


def test_a_click_brings_older_turns(take_seat):
    async def scenario(seat):
        seat.app.mailbox.put(conversation(14))
        await seat.sees("question 13")
        seat.chat.transcript.scroll_home(animate=False)
        await seat.sees("2 earlier questions")
        await seat.pilot.click("#older")
        await seat.until(lambda: len(seat.turns) == 14)

    take_seat(scenario)


def test_two_lists_that_want_the_same_place_do_not_meet(take_seat):
    async def scenario(seat):
        seat.chat.post_message(EngineUnavailable("it is gone"))
        await seat.app.run_action("screen.choose('variant')")
        await seat.sees("who guesses")

        assert 1 == len(seat.chat.query(Picker))

    take_seat(scenario)


def test_news_after_the_end_is_dropped(take_seat):
    async def scenario(seat):
        await seat.press("ctrl+q")
        await seat.until(lambda: not seat.app.is_running)
        seat.app.mailbox.put(TranscriptNote("too late"))

    take_seat(scenario)
