"""A conversation on the screen, with a scripted engine behind the real host."""

from __future__ import annotations

from specchat.tui.markdown_answer import MarkdownAnswer
from tests.processes import modules_after


def test_the_screen_opens_without_torch():
    loaded = modules_after("import specchat.tui.app, specchat.cli.tui")

    assert not {"torch", "transformers", "prompt_toolkit"} & loaded


def test_a_question_is_answered_and_summed_up(take_seat):
    async def scenario(seat):
        turn = await seat.ask("count 5")

        assert turn.answer.startswith("word0 word1 word2 word3 seed")
        await seat.sees("› count 5")
        await seat.sees("10 tok")
        await seat.sees("stop: end")
        assert seat.status.startswith("auto▸lookup K2")

    take_seat(scenario)


def test_escape_stops_and_keeps_the_partial(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word3 ")
        await seat.press("escape")
        await seat.sees("stopped, the partial is kept")
        await seat.settled()

        assert seat.turns[-1].answer.startswith("word0 word1 word2 word3 ")
        assert 1 == len(seat.turns[-1].query(MarkdownAnswer))
        await seat.ask("count 2")

    take_seat(scenario)


def test_what_a_model_writes_is_only_text(take_seat):
    async def scenario(seat):
        for text in (
            "[bold",
            "[/x]",
            "[red]a[/red]",
            "<b>bold</b>",
            "\x1b[31mred",
            "\x1b]52;c;aGk=\x07",
            "[a](javascript:b)",
        ):
            before = len(seat.turns)
            await seat.submit(f"write {text}")
            await seat.until(lambda before=before: seat.turns[before:] and seat.turns[-1].is_settled)
            assert text == seat.turns[-1].answer
        await seat.until(lambda: seat.chat.hearing.is_quiet)
        await seat.pilot.pause()

        for shown in ("[bold", "[/x]", "[red]a[/red]", "<b>bold</b>", "␛[31mred", "␛]52;c;aGk=␇"):
            assert any(line.strip() == shown for line in seat.shown.splitlines())

    take_seat(scenario, size=(100, 50))


def test_the_answer_is_the_same_text_streamed_and_settled(take_seat):
    async def scenario(seat):
        text = "# Title\n\nSome *words*:\n\n```python\nprint(1)\nprint(2)\n```\n\nand `more`."
        await seat.submit(f"write {text}")
        await seat.settled()

        assert text == seat.turns[-1].answer == seat.turns[-1].query_one(MarkdownAnswer).source
        assert ["print(1)\nprint(2)"] == [fence.code for fence in seat.turns[-1].query("MarkdownFence")]

    take_seat(scenario)


def test_a_link_is_shown_and_never_opened(take_seat, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda *arguments, **_names: opened.append(arguments))

    async def scenario(seat):
        await seat.submit("write [here](file:///etc/passwd)")
        await seat.settled()
        await seat.turns[-1].query_one(MarkdownAnswer).run_action("link('file:///etc/passwd')")
        settled = seat.turns[-1].query_one(MarkdownAnswer)
        settled.post_message(MarkdownAnswer.LinkClicked(settled, "file:///etc/passwd"))
        await seat.sees("file:///etc/passwd")

        assert [] == opened

    take_seat(scenario)
