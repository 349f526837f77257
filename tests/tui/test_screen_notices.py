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
        assert ["TurnView", "Static", "TurnView"] == blocks

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))
