"""A conversation on the screen, with a scripted engine behind the real host."""

from __future__ import annotations

import pytest

from specchat.tui.markdown_answer import MarkdownAnswer
from tests.processes import modules_after


@pytest.mark.full
def test_the_screen_opens_without_torch():
    loaded = modules_after("import specchat.tui.app, specchat.cli.chat")

    assert not {"torch", "transformers", "prompt_toolkit"} & loaded


def test_a_question_is_answered_and_summed_up(run_on_screen):
    async def scenario(driver):
        turn = await driver.ask("count 5")

        assert turn.answer.startswith("word0 word1 word2 word3 seed")
        await driver.wait_for_text("› count 5")
        await driver.wait_for_text("10 tokens ·")
        await driver.wait_for_text(" tokens · ")
        assert driver.status.startswith("embedded · ") and "accepted 50 % · ████░░░░" in driver.status

    run_on_screen(scenario)


def test_escape_stops_and_keeps_the_partial(run_on_screen):
    async def scenario(driver):
        await driver.start_answer(words=4)
        await driver.press("escape")
        await driver.wait_for_text("stopped, the partial answer is kept")
        await driver.wait_for_final_turn()

        assert driver.turns[-1].answer.startswith("word0 word1 word2 word3 ")
        assert 1 == len(driver.turns[-1].query(MarkdownAnswer))
        await driver.ask("count 2")

    run_on_screen(scenario)


def test_what_a_model_writes_is_only_text(run_on_screen):
    async def scenario(driver):
        for text in (
            "[bold",
            "[/x]",
            "[red]a[/red]",
            "<b>bold</b>",
            "\x1b[31mred",
            "\x1b]52;c;aGk=\x07",
            "[a](javascript:b)",
        ):
            before = len(driver.turns)
            await driver.submit(f"write {text}")
            await driver.wait_until(lambda before=before: driver.turns[before:] and driver.turns[-1].is_final)
            assert text == driver.turns[-1].answer
        await driver.wait_until(lambda: driver.chat.presenter.is_idle)
        await driver.pilot.pause()

        for shown in ("[bold", "[/x]", "[red]a[/red]", "<b>bold</b>", "␛[31mred", "␛]52;c;aGk=␇"):
            assert any(line.strip() == shown for line in driver.shown.splitlines())

    run_on_screen(scenario, size=(100, 50))


def test_the_answer_is_the_same_text_streamed_and_settled_and_its_links_are_never_opened(run_on_screen, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda *arguments, **_names: opened.append(arguments))

    async def scenario(driver):
        text = (
            "# Title\n\nSome *words*:\n\n```python\nprint(1)\nprint(2)\n```\n\nand `more`, [here](file:///etc/passwd)."
        )
        await driver.submit(f"write {text}")
        await driver.wait_for_final_turn()
        settled = driver.turns[-1].query_one(MarkdownAnswer)

        assert text == driver.turns[-1].answer == settled.source
        assert ["print(1)\nprint(2)"] == [fence.code for fence in driver.turns[-1].query("MarkdownFence")]
        await settled.run_action("link('file:///etc/passwd')")
        settled.post_message(MarkdownAnswer.LinkClicked(settled, "file:///etc/passwd"))
        await driver.wait_for_text("file:///etc/passwd")
        assert [] == opened

    run_on_screen(scenario)
