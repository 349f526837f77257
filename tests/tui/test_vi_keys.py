"""Vi keys: of a text and of the prompt. `|` is the cursor."""

from __future__ import annotations

from textual.widgets import Static

from specchat.tui.preferences import Preferences
from specchat.tui.vi_keys import ViKeys
from tests.each_row import each_row


def after(marked: str, keys: str) -> str:
    cursor, text, vi = marked.index("|"), marked.replace("|", ""), ViKeys()
    vi.escape(text, cursor)
    for key in keys:
        change = vi.press(key, text, cursor)
        if change is not None:
            text = text[: change.start] + change.inserted + text[change.end :] if change.is_edit else text
            cursor = change.cursor
    return text[:cursor] + "|" + text[cursor:]


@each_row(
    "before, keys, expected",
    [
        ("one |two three", "w", "one two |three"),
        ("|one two three", "2w", "one two |three"),
        ("one two thr|ee", "b", "one two |three"),
        ("|one two", "e", "on|e two"),
        ("one| two", "0", "|one two"),
        ("one| two", "$", "one tw|o"),
        ("  one| two", "^", "  |one two"),
        ("|one two", "fw", "one t|wo"),
        ("|one two", "tw", "one |two"),
        ("one tw|o", "Fn", "o|ne two"),
        ("|one", "fz", "|one"),
        ("a\nb\n|c", "gg", "|a\nb\nc"),
        ("|a\nb\nc", "G", "a\nb\n|c"),
        ("|a\nb\nc", "2G", "a\n|b\nc"),
        ("|abc", "9l", "ab|c"),
    ],
)
def test_the_cursor_moves_as_in_vi(before, keys, expected):
    assert after(before, keys) == expected


@each_row(
    "before, keys, expected",
    [
        ("|one two", "dw", "|two"),
        ("one |two", "dw", "one| "),
        ("one |two\nthree", "dw", "one| \nthree"),
        ("|one two three", "d2w", "|three"),
        ("|one two three", "2dw", "|three"),
        ("one two| three", "db", "one | three"),
        ("|one two", "de", "| two"),
        ("one |two", "D", "one| "),
        ("|one, two", "dt,", "|, two"),
        ("|abc", "x", "|bc"),
        ("ab|c", "x", "a|b"),
        ("ab|c", "X", "a|c"),
        ("|abc", "2x", "|c"),
        ("a\n|b\nc", "dd", "a\n|c"),
        ("a\n|b", "dd", "|a"),
        ("|a", "dd", "|"),
        ("|a\nb\nc", "2dd", "|c"),
        ("a\n|b\nc", "dG", "|a"),
        ("a\n|b\nc", "dgg", "|c"),
        ("|one two", "rX", "|Xne two"),
        ("|one two", "dwp", "tone| wo"),
        ("|a\nb", "yyp", "a\n|a\nb"),
        ("a\n|b", "yyP", "a\n|b\nb"),
        ("|a\nb", "ddp", "b\n|a"),
    ],
)
def test_a_text_is_changed_as_in_vi(before, keys, expected):
    assert after(before, keys) == expected


@each_row(
    "before, keys, expected",
    [
        ("|one two", "cw", "| two"),
        ("one |two", "C", "one |"),
        ("a\n|b\nc", "cc", "a\n|\nc"),
        ("one| two", "A", "one two|"),
        ("  one| two", "I", "  |one two"),
        ("o|ne", "a", "on|e"),
        ("|a\nb", "o", "a\n|\nb"),
        ("a\n|b", "O", "a\n|\nb"),
        ("|abc", "s", "|bc"),
    ],
)
def test_these_keys_begin_to_insert(before, keys, expected):
    assert after(before, keys) == expected


def test_an_unknown_key_does_nothing_and_the_next_one_counts():
    assert after("|one two", "Zw") == "one |two"


def test_the_prompt_has_vi_keys_when_the_user_wants_them(run_on_screen):
    async def scenario(driver):
        await driver.press(*"one two", "escape", *"bcw", *"three", "escape")
        assert "one three" == driver.prompt.text
        assert "N" == str(driver.chat.query_one("#prompt-mark", Static).content)

        await driver.press("u", "c", "c", *"count 3", "enter")
        await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_finished)
        assert "count 3" == driver.turns[-1].question
        await driver.press(*"new")
        assert "new" == driver.prompt.text

    run_on_screen(scenario, preferences=Preferences(uses_vi_keys=True))


def test_k_goes_to_earlier_prompts_and_escape_in_normal_mode_stops_an_answer(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 3")
        await driver.press("escape", "k")
        assert "count 3" == driver.prompt.text
        await driver.press("d", "d", "escape")
        await driver.start_answer()
        await driver.press("escape", "escape")
        await driver.wait_until(lambda: driver.turns[-1].is_finished)

    run_on_screen(scenario, preferences=Preferences(uses_vi_keys=True))


def test_without_the_option_letters_are_letters(run_on_screen):
    async def scenario(driver):
        await driver.press(*"one", "escape", "x")

        assert "onex" == driver.prompt.text

    run_on_screen(scenario)
