"""The list of conversations."""

from __future__ import annotations

import pytest

from specchat.chat.request import Request
from specchat.cli.session_options import last_session_id
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings

pytestmark = pytest.mark.usefixtures("runtime")


def store_conversation(*questions: str) -> str:
    """Store a conversation; returns its id."""
    with Conversation(SessionRequest(settings=read_settings())) as conversation:
        for question in questions:
            list(conversation.ask(Request(question)))
        return conversation.session_id


async def listed(driver, count: int):
    await driver.press("ctrl+r")
    await driver.wait_until(
        lambda: type(driver.app.screen).__name__ == "SessionsScreen" and len(driver.app.screen._all_rows) == count
    )
    return driver.app.screen


def test_a_conversation_is_continued_from_the_list(run_on_screen):
    store_conversation("count 3", "write more")

    async def scenario(driver):
        await listed(driver, 1)
        await driver.press("enter")
        await driver.wait_until(lambda: len(driver.turns) == 2)

        assert "turn 2" in (await driver.ask("count 1")).answer

    run_on_screen(scenario)


@pytest.mark.full
def test_single_questions_stand_below_the_chats_with_model_and_length(run_on_screen):
    with Conversation(SessionRequest(kind="ask", settings=read_settings())) as conversation:
        list(conversation.ask(Request("count 2")))
    store_conversation("count 3", "count 4")

    async def scenario(driver):
        screen = await listed(driver, 2)
        await driver.wait_for_text("questions of `specchat ask`")
        lines = [line.strip() for line in driver.shown.splitlines()]
        chats, questions = lines.index("chats"), lines.index("questions of `specchat ask`")

        assert lines[chats + 1].endswith("count 3")
        assert lines[chats + 2].endswith("· 2 questions")
        assert lines[questions + 1].endswith("count 2")
        assert lines[questions + 2].endswith("· 1 question")
        assert screen.session_list.highlighted_row.name == "count 3"
        await driver.press("down")
        assert screen.session_list.highlighted_row.name == "count 2"
        await driver.press("down")
        assert screen.session_list.highlighted_row.name == "count 3"
        await driver.press("up", "enter")
        await driver.wait_until(lambda: len(driver.turns) == 1)

    run_on_screen(scenario, size=(80, 24))


@pytest.mark.full
def test_a_wide_screen_shows_what_the_marked_conversation_was_about(run_on_screen):
    store_conversation("write first")
    store_conversation("count 2", "write ```\n[bold]second\n```")

    async def scenario(driver):
        screen = await listed(driver, 2)
        await driver.wait_for_text("│  › write ```")
        await driver.wait_for_text("  [bold]second")
        assert "word0" not in driver.shown
        await driver.press("down")
        await driver.wait_for_text("│  › write first")
        assert "[bold]second" not in driver.shown

        await driver.pilot.resize_terminal(80, 24)
        await driver.wait_until(lambda: "│  ›" not in driver.shown)
        await driver.press("up")
        await driver.pilot.resize_terminal(120, 24)
        await driver.wait_for_text("│  › write ```")
        assert 0 == screen.query_one("#session-list").highlighted

    run_on_screen(scenario, size=(120, 24))


@pytest.mark.full
def test_an_empty_conversation_has_an_empty_preview(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 1")
        driver.app.background_requests._last_turn = lambda _session: None
        await listed(driver, 1)
        await driver.wait_for_text("this conversation is empty")

    run_on_screen(scenario, size=(120, 24))


@pytest.mark.full
@pytest.mark.parametrize("leave", [lambda screen: screen.action_back(), lambda screen: screen.action_choose("open")])
def test_a_key_that_is_pressed_twice_leaves_the_list_once(run_on_screen, leave):
    store_conversation("count 3")

    async def scenario(driver):
        screen = await listed(driver, 1)
        screen.call_later(lambda: (leave(screen), leave(screen)))
        await driver.wait_until(lambda: driver.app.screen is not screen)
        await driver.pilot.pause()

        assert driver.app.screen is driver.chat

    run_on_screen(scenario)


def test_the_last_conversation_is_continued_from_the_command_line(run_on_screen):
    store_conversation("count 3")

    async def scenario(driver):
        assert ["count 3"] == [turn.question for turn in driver.turns]
        await driver.wait_for_text(" tokens · ")

    run_on_screen(scenario, session_request=SessionRequest(last_session_id()))


@pytest.mark.full
def test_the_contents_of_conversations_are_searched(run_on_screen):
    store_conversation("count 3")
    store_conversation("write needle")

    async def scenario(driver):
        screen = await listed(driver, 2)
        await driver.press(*"needle")
        await driver.wait_until(lambda: len(screen.session_list.rows) == 1)
        await driver.press("ctrl+f")
        await driver.wait_until(lambda: len(driver.turns) == 1 and driver.turns[0].is_final)

        assert "needle" == driver.turns[0].answer

    run_on_screen(scenario)


def test_a_conversation_is_renamed_deleted_and_restored(run_on_screen):
    session = store_conversation("count 3")

    async def scenario(driver):
        screen = await listed(driver, 1)
        await driver.press("f2", "ctrl+u", *"other", "enter")
        await driver.wait_until(lambda: screen._all_rows and screen._all_rows[0].name == "other")
        await driver.press("ctrl+d")
        await driver.wait_until(lambda: not screen.session_list.rows)
        await driver.press("ctrl+z")
        await driver.wait_until(lambda: [row.id for row in screen.session_list.rows] == [session])
        await driver.press("escape")
        await driver.wait_until(lambda: driver.app.screen is driver.chat)

    run_on_screen(scenario)


@pytest.mark.full
def test_the_conversation_on_the_screen_is_not_deleted_behind_it(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 1")
        await listed(driver, 1)
        await driver.press("ctrl+d")
        await driver.wait_for_text("use /delete")

    run_on_screen(scenario)


@pytest.mark.full
def test_the_list_can_be_looked_at_while_an_answer_is_written(run_on_screen):
    async def scenario(driver):
        await driver.start_answer()
        await listed(driver, 1)
        await driver.press("escape")
        await driver.wait_until(lambda: driver.app.screen is driver.chat)
        await driver.press("escape")
        await driver.wait_until(lambda: driver.turns[-1].is_finished)

    run_on_screen(scenario)


@pytest.mark.full
def test_the_commands_of_the_line_mode_work_here_too(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 1")
        await driver.run_command("/rename my talk")
        await driver.wait_until(lambda: "my talk" in driver.shown.splitlines()[0])
        await driver.run_command("/back")
        await driver.wait_for_text("removed: count 1")
        assert [] == driver.turns
        await driver.run_command("/new")
        await driver.wait_for_text("a new conversation")
        await driver.run_command("/nonsense")
        await driver.wait_for_text("unknown command /nonsense")

    run_on_screen(scenario)
