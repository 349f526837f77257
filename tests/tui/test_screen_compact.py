"""`/compact` in the TUI: the summary streams, and the conversation continues in a copy that begins with it."""

from __future__ import annotations

import pytest

from specchat.app import compact as compacting
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings


def notes(driver) -> list[str]:
    return [str(note.render()) for note in driver.chat.query(".note")]


@pytest.mark.full
def test_a_nearly_full_conversation_continues_in_a_copy_that_begins_with_a_summary(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 236")
        whole = driver.chat.presenter.session_id
        assert ["the context is 93% full; /compact summarizes this conversation and continues in a copy"] == notes(
            driver
        )
        await driver.run_command("/compact")
        await driver.wait_until(lambda: any("this copy begins with the summary" in note for note in notes(driver)))

        assert [turn.question[:20] for turn in driver.turns] == [compacting.CONTINUE_PROMPT[:20]]
        assert f"/open {whole} is the whole conversation" in notes(driver)[-1]
        assert whole != driver.chat.presenter.session_id
        await driver.ask("write third")
        assert [0, 1] == [turn.position for turn in driver.turns]

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))


@pytest.mark.full
def test_escape_stops_the_summary_and_restores_the_conversation(run_on_screen, monkeypatch):
    monkeypatch.setattr(compacting, "SUMMARY_PROMPT", "slowly 100000")

    async def scenario(driver):
        await driver.ask("write first")
        whole = driver.chat.presenter.session_id
        await driver.run_command("/compact")
        await driver.wait_for_text("word9 ")
        assert whole != driver.chat.presenter.session_id
        await driver.press("escape")
        await driver.wait_until(lambda: any("there is no summary" in note for note in notes(driver)))

        assert whole == driver.chat.presenter.session_id
        assert ["write first"] == [turn.question for turn in driver.turns]
        assert (await driver.ask("write second")).position == 1

    run_on_screen(scenario)


@pytest.mark.full
def test_a_queued_request_is_sent_in_the_copy(run_on_screen, monkeypatch):
    monkeypatch.setattr(compacting, "SUMMARY_PROMPT", "slowly 60")

    async def scenario(driver):
        await driver.ask("write first")
        await driver.run_command("/compact")
        await driver.wait_for_text("word3 ")
        await driver.run_command("write next")
        await driver.wait_until(
            lambda: driver.turns and driver.turns[-1].answer == "next" and driver.turns[-1].is_finished
        )

        assert [compacting.CONTINUE_PROMPT[:20], "write next"] == [turn.question[:20] for turn in driver.turns]
        assert [0, 1] == [turn.position for turn in driver.turns]

    run_on_screen(scenario)


@pytest.mark.full
def test_it_is_offered_with_the_other_commands(run_on_screen):
    async def scenario(driver):
        await driver.press("slash", *"comp")
        await driver.wait_for_text("/compact")

    run_on_screen(scenario)
