"""`screen.toml`: what the file may contain, and its effect on the TUI."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.binding import Binding

from specchat.errors import ProfileError
from specchat.profile.screen_file import preferences_file, wants_vi_keys
from specchat.tui.app import binding_scopes
from specchat.tui.inspector import Inspector
from specchat.tui.preferences import DEFAULT_PREFERENCES, Preferences, read_preferences
from specchat.tui.token_view import TokenView
from tests.each_row import each_row


def read(tmp_path, text: str) -> Preferences:
    path = tmp_path / "screen.toml"
    path.write_text(text)
    return read_preferences(path, binding_scopes())


def test_without_a_file_everything_is_as_usual(tmp_path):
    assert read_preferences(tmp_path / "screen.toml", binding_scopes()) is DEFAULT_PREFERENCES


def test_the_file_lies_in_the_configuration_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path))

    assert preferences_file() == tmp_path / "screen.toml"


def test_an_action_has_a_key_or_several(tmp_path):
    preferences = read(tmp_path, 'mouse = false\n[keys]\ninspect = "f12"\nsessions = ["ctrl+s", "f2"]\n')

    assert preferences == Preferences({"inspect": "f12", "sessions": "ctrl+s,f2"}, captures_mouse=False)


def test_the_line_mode_reads_whether_the_user_wants_vi_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path))
    assert not wants_vi_keys()
    assert read(tmp_path, "vi = true\n") == DEFAULT_PREFERENCES
    assert wants_vi_keys()


def test_two_actions_may_change_places(tmp_path):
    assert read(tmp_path, '[keys]\ninspect = "f4"\nvariant = "f3"\n').keys == {"inspect": "f4", "variant": "f3"}


@each_row(
    "text, message",
    [
        ('[keys]\ninspct = "f12"\n', r":2: unknown action 'inspct'; did you mean 'inspect'"),
        ('[keys]\nzzz = "f12"\n', r"unknown action 'zzz'; available: boundaries, "),
        ('[keys]\ninspect = "f4"\n', r":2: 'f4' would mean inspect and variant"),
        ('[keys]\ninspect = "f12"\nhistory = "f12"\n', r"'f12' would mean \w+ and \w+"),
        ('[keys]\ncopy = "escape"\n', r"'escape' would mean copy and stop"),
        ('[keys]\nlist_undo = "ctrl+d"\n', r"'ctrl\+d' would mean list_undo and list_delete"),
        ('[keys]\ninspect = "ctrll+x"\n', r":2: 'ctrll\+x' is not a key"),
        ('[keys]\ninspect = "pagdown"\n', r"'pagdown' is not a key; did you mean 'pagedown'"),
        ("[keys]\ninspect = 9\n", r"inspect needs a key such as"),
        ("[keys]\ninspect = []\n", r"inspect needs a key such as"),
        ("keys = 3\n", r"\[keys\] must be a table"),
        ("mouse = 1\n", r":1: mouse must be true or false, not 1"),
        ("vi = 1\n", r":1: vi must be true or false, not 1"),
        ("mose = true\n", r":1: unknown key 'mose'; did you mean 'mouse'"),
        ("[keys\n", r":1: not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(ProfileError, match=message):
        read(tmp_path, text)


def test_the_page_about_keys_lists_every_action_with_its_keys():
    bound: dict[str, list[str]] = {}
    for binding in Binding.make_bindings([each for place in binding_scopes() for each in place]):
        if binding.id:
            bound.setdefault(binding.id, []).append(binding.key)
    page = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")
    listed = {row[1]: row[2].split(", ") for row in re.finditer(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE)}

    assert listed == {action: list(dict.fromkeys(keys)) for action, keys in bound.items()}


@pytest.mark.full
def test_a_chosen_key_replaces_the_default_key(run_on_screen):
    async def scenario(driver):
        await driver.press("f3")
        assert not driver.chat.query(Inspector)
        await driver.press("f12")
        await driver.wait_until(lambda: isinstance(driver.app.focused, TokenView))
        await driver.press("b")
        await driver.wait_until(lambda: inspector_of(driver).token_view.text.shows_boundaries)

    run_on_screen(scenario, preferences=Preferences({"inspect": "f12", "boundaries": "b"}))


def inspector_of(driver) -> Inspector:
    return driver.chat.query_one(Inspector)


@pytest.mark.parametrize("way", ["f9", pytest.param("/mouse", marks=pytest.mark.full)])
def test_the_mouse_is_released_and_captured_again(run_on_screen, way):
    written: list[str] = []

    async def scenario(driver):
        driver.app._driver.write = written.append
        for text in ("select text with it", "works here again"):
            await (driver.run_command(way) if way.startswith("/") else driver.press(way))
            await driver.wait_until(lambda text=text: any(text in each.message for each in driver.app._notifications))

        assert ["\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l", "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"] == [
            text for text in written if "?1000" in text
        ]

    run_on_screen(scenario)


def test_a_released_mouse_is_captured_with_the_first_key(run_on_screen):
    async def scenario(driver):
        assert not driver.app.captures_mouse
        await driver.press("f9")
        await driver.wait_until(lambda: driver.app.captures_mouse)

    run_on_screen(scenario, preferences=Preferences(captures_mouse=False))


def test_a_theme_is_chosen_by_name_and_an_unknown_one_is_an_error(tmp_path):
    assert "nord" == read(tmp_path, 'theme = "nord"\n').theme
    assert "" == read(tmp_path, "vi = true\n").theme
    with pytest.raises(ProfileError, match=r":1: 'nort' is no theme; did you mean 'nord'\? available: "):
        read(tmp_path, 'theme = "nort"\n')


def test_the_theme_of_the_file_wins_and_a_command_changes_it(run_on_screen):
    async def scenario(driver):
        assert "nord" == driver.app.theme
        await driver.type("/theme dra")
        await driver.press("c")
        await driver.wait_until(lambda: driver.prompt.is_completing)
        await driver.press("tab")
        assert driver.prompt.text == "/theme dracula"
        driver.prompt.clear_all()
        driver.chat.submit("/theme dracula")
        await driver.wait_until(lambda: driver.app.theme == "dracula")
        driver.chat.submit("/theme draculla")
        await driver.wait_for_text("'draculla' is no theme; did you mean 'dracula'?")  # the beginning of a note
        assert driver.app.theme == "dracula"

    run_on_screen(scenario, preferences=Preferences(theme="nord"))
