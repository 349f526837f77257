"""Dim notes after an answer: another drafter, and a nearly full context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from specchat.chat.events import Event, StepDone
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings


@pytest.fixture
def drafted_by(monkeypatch):
    """Set the drafter of the next answers."""
    original_ask = Conversation.ask

    def choose(drafter: str) -> None:
        def ask(conversation, request, cancelled=None) -> Iterator[Event]:
            for event in original_ask(conversation, request, cancelled):
                yield (
                    replace(event, draft_sources=(drafter,) * len(event.draft_tokens))
                    if isinstance(event, StepDone)
                    else event
                )

        monkeypatch.setattr(Conversation, "ask", ask)

    return choose


def notes(driver) -> list[str]:
    return [str(note.render()) for note in driver.chat.query(".note")]


def test_a_change_of_drafter_is_noted_once(run_on_screen, drafted_by):
    async def scenario(driver):
        await driver.ask("count 20")
        drafted_by("draft")
        await driver.ask("count 20")
        assert ["drafter changed from lookup to draft: in 20 of 20 steps"] == notes(driver)
        await driver.ask("count 20")

        assert 1 == len(notes(driver))

    run_on_screen(scenario)


@pytest.mark.full
def test_the_note_appears_under_the_answer_that_brought_the_change(run_on_screen, drafted_by):
    async def scenario(driver):
        await driver.ask("count 20")
        drafted_by("suffix")
        await driver.ask("write short")
        await driver.ask("count 20")
        await driver.ask("write last")

        blocks = [type(block).__name__ for block in driver.chat.transcript.children if block.display]
        assert ["TurnView", "TurnView", "TurnView", "Static", "TurnView"] == blocks

    run_on_screen(scenario)


@pytest.mark.full
def test_a_nearly_full_context_adds_one_note(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 236")
        assert ["the context is 93% full; /compact summarizes this conversation and continues in a copy"] == notes(
            driver
        )

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))
