"""A file that does not fit on the screen: it is read in parts, with progress, and Escape stops it."""

from __future__ import annotations

import pytest

from specchat.app import part_reader
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("All work and no play makes Jack a dull boy.\n" * 45)


@pytest.mark.usefixtures("book")
def test_the_answer_comes_from_the_notes_and_a_line_says_which_file_was_summarized(run_on_screen):
    async def scenario(driver):
        turn = await driver.ask("Summarize @book.txt")
        await driver.wait_for_text("read in parts and summarized: book.txt")
        await driver.wait_for_text("attached: notes about all of book.txt")

        assert ["Summarize @book.txt"] == [each.question for each in driver.turns]
        assert turn.answer

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))


@pytest.mark.full
@pytest.mark.usefixtures("book")
def test_escape_stops_the_reading_and_the_question_is_not_part_of_the_conversation(run_on_screen, monkeypatch):
    monkeypatch.setattr(part_reader, "PART_PROMPT", "slowly 100000")

    async def scenario(driver):
        await driver.run_command("Summarize @book.txt")
        await driver.wait_for_text("reading book.txt, part 1 of 3")
        await driver.press("escape")
        await driver.wait_for_text("stopped while reading book.txt, part 1 of 3; the question is not sent")
        await driver.wait_until(lambda: driver.chat.presenter.is_idle)

        assert "failed" not in driver.shown
        assert [None] == [turn.position for turn in driver.turns]

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))
