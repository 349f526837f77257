"""The prompt: keys, pastes, completion, and the history."""

from __future__ import annotations

import pytest
from textual import events

from specchat.app.completion import completions
from specchat.tui.prompt_input import append_prompt_history, read_prompt_history
from specchat.tui.screen_commands import BUILTIN_COMMANDS


async def paste(driver, text: str) -> None:
    driver.prompt.post_message(events.Paste(text))
    await driver.pilot.pause()


def test_a_new_line_and_a_paste_never_send(run_on_screen):
    async def scenario(driver):
        await driver.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d")
        assert "a\nb\nc\nd" == driver.prompt.text
        driver.prompt.clear_all()
        await paste(driver, "one\r\ntwo\n")
        assert "one\ntwo\n" == driver.prompt.text
        driver.prompt.clear_all()
        await paste(driver, "\x1b[31mred\ttab")
        assert "␛[31mred\ttab" == driver.prompt.text
        assert [] == driver.turns

    run_on_screen(scenario)


@pytest.mark.full
def test_a_backslash_before_enter_is_a_new_line(run_on_screen):
    async def scenario(driver):
        await driver.press("a", "backslash", "enter", "b")

        assert "a\nb" == driver.prompt.text

    run_on_screen(scenario)


@pytest.mark.full
def test_a_long_paste_is_a_placeholder_until_it_is_sent(run_on_screen):
    async def scenario(driver):
        lines = "\n".join(f"line {number}" for number in range(143))
        await driver.press("a", "space")
        await paste(driver, lines)
        await driver.wait_for_text("a [pasted 143 lines, 1]")
        await driver.press("enter")
        await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_finished)

        assert f"a {lines}" == driver.turns[-1].question
        await driver.wait_for_text("… 127 more lines")

    run_on_screen(scenario)


@pytest.mark.full
def test_a_paste_of_100_kilobytes_is_one_placeholder(run_on_screen):
    async def scenario(driver):
        await paste(driver, "x" * 100_000)
        await driver.wait_for_text("[pasted 100,000 characters, 1]")
        await driver.press("enter")
        await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_finished)

        assert 100_000 == len(driver.turns[-1].question)
        assert 100_000 < len(driver.turns[-1].answer)

    run_on_screen(scenario)


@pytest.mark.full
def test_up_and_down_browse_the_history(run_on_screen):
    async def scenario(driver):
        for question in ("count 1", "count 2", "other"):
            await driver.ask(question)
        await driver.press("d", "up")
        assert "d" == driver.prompt.text
        await driver.press("backspace", "up")
        assert "other" == driver.prompt.text
        await driver.press("up")
        assert "count 2" == driver.prompt.text
        await driver.press("down", "down")
        assert "" == driver.prompt.text
        await driver.type("count")
        await driver.press("up", "up", "up")
        assert "count 1" == driver.prompt.text

    run_on_screen(scenario)


@pytest.mark.full
def test_the_arrows_move_inside_a_question_of_several_lines(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 1")
        await driver.press("a", "ctrl+j", "b", "up", "x")

        assert "ax\nb" == driver.prompt.text

    run_on_screen(scenario)


@pytest.mark.full
def test_earlier_questions_can_be_searched(run_on_screen):
    async def scenario(driver):
        for question in ("count 1", "write hello"):
            await driver.ask(question)
        await driver.press("ctrl+o")
        await driver.wait_for_text("earlier prompts")
        await driver.press("c", "o", "u", "enter")
        await driver.wait_until(lambda: driver.prompt.text == "count 1")

        assert driver.prompt.has_focus

    run_on_screen(scenario)


def test_a_slash_lists_commands_and_tab_accepts_one(run_on_screen):
    async def scenario(driver):
        await driver.press("slash", "t", "e")
        await driver.wait_for_text("How varied the text is")
        await driver.press("tab")
        assert "/temperature " == driver.prompt.text
        await driver.press("0", "enter")
        await driver.wait_for_text("temperature: 0")

    run_on_screen(scenario)


@pytest.mark.full
def test_enter_on_a_marked_command_runs_it_and_escape_closes_the_list(run_on_screen):
    async def scenario(driver):
        await driver.press("slash", "w", "h", "escape")
        assert not driver.prompt.is_completing
        assert "/wh" == driver.prompt.text
        await driver.press("y", "enter")
        await driver.wait_for_text("this conversation has no answer yet")

    run_on_screen(scenario)


@pytest.mark.full
def test_enter_runs_a_command_that_is_typed_to_its_end_while_the_list_is_open(run_on_screen):
    async def scenario(driver):
        await driver.press(*"/why")
        await driver.wait_until(lambda: driver.prompt.is_completing)
        await driver.press("enter")
        await driver.wait_for_text("this conversation has no answer yet")

        assert "" == driver.prompt.text

    run_on_screen(scenario)


@pytest.mark.full
def test_the_list_is_walked_with_the_arrows(run_on_screen):
    async def scenario(driver):
        await driver.press("slash", "r", "e", "down", "tab")

        assert "/rename " == driver.prompt.text

    run_on_screen(scenario)


def test_an_at_sign_offers_files_and_the_file_goes_with_the_question(run_on_screen, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("old text")
    monkeypatch.chdir(tmp_path)

    async def scenario(driver):
        await driver.press(*"replace", "space", *"old", "space", *"new", "space", "@", "n", "o", "tab")
        assert "replace old new @notes.txt" == driver.prompt.text
        await driver.press("escape", "enter")
        await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_finished)

    run_on_screen(scenario)


@pytest.mark.full
def test_a_name_with_spaces_is_completed_in_quotes(run_on_screen, tmp_path, monkeypatch):
    (tmp_path / "my notes.txt").write_text("old text")
    monkeypatch.chdir(tmp_path)

    async def scenario(driver):
        await driver.press("s", "a", "y", "space", "@", "m", "y", "tab")
        assert driver.prompt.text == 'say @"my notes.txt"'
        await driver.press(*["backspace"] * 5, "tab")
        assert driver.prompt.text == 'say @"my notes.txt"'
        await driver.press("escape", "enter")
        await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_finished)
        await driver.wait_for_text("attached: my notes.txt (about 3 tokens)")

    run_on_screen(scenario)


@pytest.mark.full
def test_passages_of_a_folder_are_noted_before_the_answer_and_sources_after_it(run_on_screen, tmp_path, monkeypatch):
    for number in range(40):
        path = tmp_path / "docs" / f"part{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"About number {number}.\n\n" + "Filling words about nothing.\n" * 60)
    monkeypatch.chdir(tmp_path)

    async def scenario(driver):
        await driver.type("say something about number 7 in @docs/")
        await driver.press("enter")
        await driver.wait_for_text("sources: docs/part7.txt")
        await driver.wait_for_text("attached: 1 passage of 1 file")

    run_on_screen(scenario)


def test_a_command_is_found_by_a_part_of_its_name(tmp_path):
    begun = {choice.text for choice in completions("/re", BUILTIN_COMMANDS, tmp_path) if choice.text.startswith("/re")}
    assert {"/retry", "/restore ", "/rename ", "/rewind", "/reword", "/repetition-penalty "} == begun
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


def test_the_prompt_history_is_shared_with_the_line_mode(tmp_path):
    path = tmp_path / "questions"
    for question in ("one", "two\nlines", "one"):
        append_prompt_history(path, question)

    assert ["two\nlines", "one"] == read_prompt_history(path)
    history = pytest.importorskip("prompt_toolkit.history").FileHistory(str(path))
    assert ["one", "two\nlines", "one"] == list(history.load_history_strings())
    assert [] == read_prompt_history(tmp_path / "none")
    append_prompt_history(tmp_path / "no" / "folder", "x")
