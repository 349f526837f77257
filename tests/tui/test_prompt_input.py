"""The prompt: every key, pastes, completion, and the questions of before."""

from __future__ import annotations

import pytest
from textual import events

from specchat.tui.prompt_completions import completions
from specchat.tui.prompt_history import append_prompt_history, read_prompt_history
from specchat.tui.screen_commands import BUILTIN_COMMANDS


async def paste(seat, text: str) -> None:
    seat.prompt.post_message(events.Paste(text))
    await seat.pilot.pause()


def test_a_new_line_is_no_sending(take_seat):
    async def scenario(seat):
        await seat.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d")

        assert "a\nb\nc\nd" == seat.prompt.text
        assert [] == seat.turns

    take_seat(scenario)


@pytest.mark.full
def test_a_backslash_before_enter_is_a_new_line(take_seat):
    async def scenario(seat):
        await seat.press("a", "backslash", "enter", "b")

        assert "a\nb" == seat.prompt.text

    take_seat(scenario)


def test_a_paste_never_sends(take_seat):
    async def scenario(seat):
        await paste(seat, "one\r\ntwo\n")

        assert "one\ntwo\n" == seat.prompt.text
        assert [] == seat.turns

    take_seat(scenario)


@pytest.mark.full
def test_a_long_paste_stands_as_a_word_until_it_is_sent(take_seat):
    async def scenario(seat):
        lines = "\n".join(f"line {number}" for number in range(143))
        await seat.press("a", "space")
        await paste(seat, lines)
        await seat.sees("a [pasted 143 lines, 1]")
        await seat.press("enter")
        await seat.until(lambda: seat.turns and seat.turns[-1].is_over)

        assert f"a {lines}" == seat.turns[-1].question
        await seat.sees("… 127 more lines")

    take_seat(scenario)


@pytest.mark.full
def test_a_paste_of_100_kilobytes_is_one_word(take_seat):
    async def scenario(seat):
        await paste(seat, "x" * 100_000)
        await seat.sees("[pasted 100,000 characters, 1]")
        await seat.press("enter")
        await seat.until(lambda: seat.turns and seat.turns[-1].is_over)

        assert 100_000 == len(seat.turns[-1].question)
        assert 100_000 < len(seat.turns[-1].answer)

    take_seat(scenario)


def test_escapes_in_a_paste_reach_no_terminal(take_seat):
    async def scenario(seat):
        await paste(seat, "\x1b[31mred\ttab")

        assert "␛[31mred\ttab" == seat.prompt.text

    take_seat(scenario)


@pytest.mark.full
def test_up_and_down_go_through_what_was_asked(take_seat):
    async def scenario(seat):
        for question in ("count 1", "count 2", "other"):
            await seat.ask(question)
        await seat.press("d", "up")
        assert "d" == seat.prompt.text
        await seat.press("backspace", "up")
        assert "other" == seat.prompt.text
        await seat.press("up")
        assert "count 2" == seat.prompt.text
        await seat.press("down", "down")
        assert "" == seat.prompt.text
        await seat.type("count")
        await seat.press("up", "up", "up")
        assert "count 1" == seat.prompt.text

    take_seat(scenario)


@pytest.mark.full
def test_the_arrows_move_inside_a_question_of_several_lines(take_seat):
    async def scenario(seat):
        await seat.ask("count 1")
        await seat.press("a", "ctrl+j", "b", "up", "x")

        assert "ax\nb" == seat.prompt.text

    take_seat(scenario)


@pytest.mark.full
def test_earlier_questions_can_be_searched(take_seat):
    async def scenario(seat):
        for question in ("count 1", "write hello"):
            await seat.ask(question)
        await seat.press("ctrl+o")
        await seat.sees("earlier questions")
        await seat.press("c", "o", "u", "enter")
        await seat.until(lambda: seat.prompt.text == "count 1")

        assert seat.prompt.has_focus

    take_seat(scenario)


def test_a_slash_offers_commands_and_tab_takes_one(take_seat):
    async def scenario(seat):
        await seat.press("slash", "t", "e")
        await seat.sees("the likeliest token, always")
        await seat.press("tab")
        assert "/temperature " == seat.prompt.text
        await seat.press("0", "enter")
        await seat.sees("temperature: 0.0")

    take_seat(scenario)


@pytest.mark.full
def test_enter_on_a_marked_command_runs_it_and_escape_closes_the_list(take_seat):
    async def scenario(seat):
        await seat.press("slash", "w", "h", "escape")
        assert not seat.prompt.is_completing
        assert "/wh" == seat.prompt.text
        await seat.press("y", "enter")
        await seat.sees("nothing was answered yet")

    take_seat(scenario)


@pytest.mark.full
def test_enter_runs_a_command_that_is_typed_to_its_end_while_the_list_is_open(take_seat):
    async def scenario(seat):
        await seat.press(*"/why")
        await seat.until(lambda: seat.prompt.is_completing)
        await seat.press("enter")
        await seat.sees("nothing was answered yet")

        assert "" == seat.prompt.text

    take_seat(scenario)


@pytest.mark.full
def test_the_list_is_walked_with_the_arrows(take_seat):
    async def scenario(seat):
        await seat.press("slash", "r", "e", "down", "tab")

        assert "/rename " == seat.prompt.text

    take_seat(scenario)


def test_an_at_sign_offers_files_and_the_file_goes_with_the_question(take_seat, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("old text")
    monkeypatch.chdir(tmp_path)

    async def scenario(seat):
        await seat.press(*"replace", "space", *"old", "space", *"new", "space", "@", "n", "o", "tab")
        assert "replace old new @notes.txt" == seat.prompt.text
        await seat.press("escape", "enter")
        await seat.until(lambda: seat.turns and seat.turns[-1].is_over)

    take_seat(scenario)


@pytest.mark.full
def test_what_a_folder_gives_is_said_before_the_answer_and_its_sources_after_it(take_seat, tmp_path, monkeypatch):
    for number in range(40):
        path = tmp_path / "docs" / f"part{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"About number {number}.\n\n" + "Filling words about nothing.\n" * 60)
    monkeypatch.chdir(tmp_path)

    async def scenario(seat):
        await seat.type("say something about number 7 in @docs/")
        await seat.press("enter")
        await seat.sees("sources: docs/part7.txt")
        await seat.sees("1 passage of 1 file attached, out of 40 files")

    take_seat(scenario)


def test_a_word_of_a_command_is_found_inside_too(tmp_path):
    begun = {choice.text for choice in completions("/re", BUILTIN_COMMANDS, tmp_path) if choice.text.startswith("/re")}
    assert {"/retry", "/restore ", "/rename ", "/rewind", "/reword"} == begun
    assert any(choice.text == "/variant " for choice in completions("/ria", BUILTIN_COMMANDS, tmp_path))
    assert [] == completions("no /help here", BUILTIN_COMMANDS, tmp_path)


def test_files_are_found_beside_and_below(tmp_path):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "parser.py").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "repository.txt").touch()

    assert ["src/", "repository.txt"] == [choice.text for choice in completions("see @", BUILTIN_COMMANDS, tmp_path)]
    assert ["src/deep/"] == [choice.text for choice in completions("see @src/", BUILTIN_COMMANDS, tmp_path)]
    assert ["src/deep/parser.py"] == [choice.text for choice in completions("see @parse", BUILTIN_COMMANDS, tmp_path)]
    assert [".hidden"] == [choice.text for choice in completions("/file .h", BUILTIN_COMMANDS, tmp_path)]
    assert [] == completions("@/no/such/folder/x", BUILTIN_COMMANDS, tmp_path)
    assert ["repo", "repository.txt"] == [choice.text for choice in completions("@re", BUILTIN_COMMANDS, tmp_path)]


def test_questions_are_kept_as_the_line_mode_keeps_them(tmp_path):
    path = tmp_path / "questions"
    for question in ("one", "two\nlines", "one"):
        append_prompt_history(path, question)

    assert ["two\nlines", "one"] == read_prompt_history(path)
    history = pytest.importorskip("prompt_toolkit.history").FileHistory(str(path))
    assert ["one", "two\nlines", "one"] == list(history.load_history_strings())
    assert [] == read_prompt_history(tmp_path / "none")
    append_prompt_history(tmp_path / "no" / "folder", "x")
