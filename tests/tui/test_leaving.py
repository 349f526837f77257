"""The user quits while something is being drawn: no traceback, and errors of a running screen stay visible."""

from __future__ import annotations

import asyncio

import pytest
from textual.widget import MountError

from specchat.app.ask import Asked
from specchat.chat.events import Finished, TextDelta, Totals
from specchat.chat.request import Request
from specchat.history.history_reader import StoredAnswer, StoredTurn
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.conversation_presenter import ConversationPresenter, ForScreen
from specchat.tui.markdown_answer import MarkdownAnswer
from specchat.tui.picker import Picker
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import TurnView
from specchat.tui.worker_messages import AnswerEnded, ConversationOpened, EngineLost, TranscriptNote

STEPS = [
    (Transcript, "show_turns"),
    (Transcript, "_mount_stored"),
    (TurnView, "show_stored"),
    (TurnView, "finalize"),
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
    """Run a callback in the middle of a step, once; the returned flag is set when it starts."""

    def interrupt(owner, name, callback) -> asyncio.Event:
        started, original = asyncio.Event(), getattr(owner, name)

        async def interrupted(*arguments, **names):
            if not started.is_set():
                started.set()
                await callback()
            return await original(*arguments, **names)

        monkeypatch.setattr(owner, name, interrupted)
        return started

    return interrupt


@pytest.mark.dear
@pytest.mark.parametrize(
    ("owner", "name"),
    [STEPS[0], *(pytest.param(*each, marks=pytest.mark.full) for each in STEPS[1:-1]), STEPS[-1]],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_the_user_may_quit_while_a_conversation_opens(run_on_screen, during, owner, name):
    async def scenario(driver):
        async def leave():
            driver.app.exit()

        during(owner, name, leave)
        driver.app.worker_messages.put(conversation())
        await driver.wait_until(lambda: not driver.app.is_running)

        assert 0 == driver.app.return_code

    run_on_screen(scenario)


@pytest.mark.parametrize(
    ("owner", "name"),
    [*(pytest.param(*each, marks=pytest.mark.full) for each in STEPS[:-1]), STEPS[-1]],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_the_screen_may_close_while_a_conversation_opens(run_on_screen, during, owner, name):
    async def scenario(driver):
        async def go_on_when_it_is_gone():
            while driver.app.is_running:  # noqa: ASYNC110 (the exact moment matters)
                await asyncio.sleep(0)

        started = during(owner, name, go_on_when_it_is_gone)
        driver.app.worker_messages.put(conversation())
        await asyncio.wait_for(started.wait(), 60)

    run_on_screen(scenario)


@pytest.mark.full
def test_an_error_of_a_living_screen_is_not_hidden(run_on_screen, monkeypatch):
    def cannot_be_drawn(*_arguments):
        raise MountError("not here")

    async def scenario(driver):
        monkeypatch.setattr(ConversationPresenter, "_show_title", cannot_be_drawn)
        driver.app.worker_messages.put(conversation())
        await driver.wait_until(lambda: not driver.app.is_running)

    with pytest.raises(MountError, match="not here"):
        run_on_screen(scenario)


@pytest.mark.full
def test_older_turns_and_another_conversation_do_not_get_in_each_others_way(run_on_screen, during):
    async def scenario(driver):
        driver.app.worker_messages.put(conversation(40))
        await driver.wait_for_text("question 39")
        shown = asyncio.Event()
        started = during(Transcript, "_mount_stored", shown.wait)
        older = asyncio.create_task(driver.app.run_action("screen.show_older"))
        await asyncio.wait_for(started.wait(), 60)
        driver.app.worker_messages.put(ConversationOpened("third", "another", "chat", stored(2)))
        await asyncio.sleep(0.1)
        shown.set()
        await older
        await driver.wait_until(lambda: driver.chat.presenter.session_id == "third" and len(driver.turns) == 2)
        await driver.pilot.pause()

        assert ["question 0", "question 1"] == [turn.question for turn in driver.turns]
        assert "earlier turn" not in driver.shown

    run_on_screen(scenario)


@pytest.mark.full
def test_an_answer_appears_under_its_request_also_when_another_was_shown_before(run_on_screen):
    async def scenario(driver):
        await driver.chat.presenter.start_turn("second")  # typed while "/retry" was being sent
        for text in ("first", "second"):
            driver.app.worker_messages.put(Asked(Request(text)))
            driver.app.worker_messages.put(TextDelta(f"of the {text}"))
            driver.app.worker_messages.put(Finished("stop", Totals()))
            driver.app.worker_messages.put(AnswerEnded(is_stored=True))
        await driver.wait_until(lambda: len(driver.turns) == 2 and driver.turns[-1].is_finished)

        assert [("first", "of the first"), ("second", "of the second")] == [
            (turn.question, turn.answer) for turn in driver.turns
        ]
        assert [0, 1] == [turn.position for turn in driver.turns]

    run_on_screen(scenario)


@pytest.mark.full
def test_a_list_of_questions_may_be_older_than_the_conversation(run_on_screen):
    async def scenario(driver):
        driver.app.worker_messages.put(conversation(3))
        await driver.wait_for_text("question 2")
        await driver.press("escape", "escape")
        await driver.wait_for_text("edit a request")
        driver.app.worker_messages.put(ConversationOpened("third", "another", "chat", ()))
        await driver.wait_until(lambda: driver.chat.presenter.session_id == "third")
        await driver.press("enter")
        await driver.wait_until(lambda: not driver.chat.query(Picker))

        assert "" == driver.prompt.text

    run_on_screen(scenario)


@pytest.mark.full
def test_a_click_brings_older_turns(run_on_screen):
    async def scenario(driver):
        driver.app.worker_messages.put(conversation(14))
        await driver.wait_for_text("question 13")
        driver.chat.transcript.scroll_home(animate=False)
        await driver.wait_for_text("2 earlier turns")
        await driver.pilot.click("#older-notice")
        await driver.wait_until(lambda: len(driver.turns) == 14)

    run_on_screen(scenario)


@pytest.mark.full
def test_two_pickers_for_the_same_area_do_not_collide(run_on_screen):
    async def scenario(driver):
        driver.chat.post_message(ForScreen(EngineLost("it is gone")))
        await driver.app.run_action("screen.open_picker('variant')")
        await driver.wait_for_text("drafter, from the next request")

        assert 1 == len(driver.chat.query(Picker))

    run_on_screen(scenario)


def test_messages_after_the_end_are_dropped(run_on_screen):
    async def scenario(driver):
        await driver.press("ctrl+q")
        await driver.wait_until(lambda: not driver.app.is_running)
        driver.app.worker_messages.put(TranscriptNote("too late"))

    run_on_screen(scenario)


def test_quit_ends_at_once_also_while_models_are_loaded(runtime, run_on_screen):
    async def scenario(driver):
        await driver.run_command("hello")
        await driver.wait_until(lambda: driver.status.startswith("loading the target model"))
        await driver.run_command("/quit")
        await driver.wait_until(lambda: not driver.app.is_running)
        assert driver.chat.presenter.resumable_session

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("endless")), is_ready=False)


def test_a_conversation_with_turns_can_be_resumed_by_its_id(run_on_screen):
    async def scenario(driver):
        assert "" == driver.chat.presenter.resumable_session
        driver.app.worker_messages.put(conversation(1))
        await driver.wait_for_text("question 0")
        assert "other" == driver.chat.presenter.resumable_session

    run_on_screen(scenario)
