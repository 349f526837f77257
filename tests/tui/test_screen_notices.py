"""The dim note under the answer that nearly fills the context."""

from __future__ import annotations

import pytest

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings


@pytest.mark.full
def test_a_nearly_full_context_adds_one_note_under_the_answer_that_filled_it(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 236")
        await driver.ask("write last")

        notes = [str(note.render()) for note in driver.chat.query(".note")]
        assert ["the context is 93% full; /compact summarizes this conversation and continues in a copy"] == notes
        blocks = [type(block).__name__ for block in driver.chat.transcript.children if block.display]
        assert ["TurnView", "OwnLabel", "TurnView"] == blocks

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))


def test_a_notice_that_comes_before_the_answer_stands_before_it(run_on_screen):
    async def scenario(driver):
        await driver.submit("agent\nnotice look out | the answer")
        await driver.wait_until(lambda: driver.turns and driver.turns[0].is_final)

        [notice] = driver.chat.query(".remark")
        blocks = [block for block in driver.turns[0].children if block.display]
        assert "look out" == str(notice.render())
        assert blocks.index(notice) < blocks.index(driver.turns[0].query_one("MarkdownAnswer"))
        assert blocks.index(driver.turns[0].query_one(".question")) < blocks.index(notice)

    run_on_screen(scenario)
