"""The colours of the terminal decide between the light and the dark theme, unless the user chose one."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from threading import Thread

import pytest

from specchat.drawing.themes import DARK_THEME, LIGHT_THEME
from specchat.tui import terminal_background
from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.preferences import DEFAULT_PREFERENCES, Preferences
from specchat.tui.terminal_background import TerminalBackground, read_answers
from tests.each_row import each_row
from tests.front import Bytes
from tests.tui.conftest import CHAT, ScreenDriver

KIND = b"\x1b[?62;22c"


@each_row(
    "answers, variable, is_light, typed",
    [
        (b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\" + KIND, "", True, ""),
        (b"\x1b]11;rgb:1515/1818/1c1c\x07" + KIND, "0;15", False, ""),
        (b"\x1b]11;rgba:ff/fd/f0/ff\x07" + KIND, "", True, ""),
        (KIND, "0;15", True, ""),
        (KIND, "15;default;0", False, ""),
        (b"", "", False, ""),
        (b"hi" + KIND + b"\x1b[A \xc3\xa9\r", "", False, "hi é"),
    ],
)  # fmt: skip
def test_the_background_is_read_from_the_answer_else_from_the_variable(answers, variable, is_light, typed):
    assert TerminalBackground(is_light, typed) == read_answers(answers, variable)


def test_a_terminal_is_asked_and_left_as_it_was(monkeypatch):
    master, slave = pty.openpty()
    asked = list[bytes]()

    def answer() -> None:
        asked.append(os.read(master, 1024))
        os.write(master, b"a\x1b]11;rgb:ffff/ffff/ffff\x1b\\" + KIND)

    with os.fdopen(slave, "r+b", buffering=0) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        thread = Thread(target=answer)
        thread.start()
        assert TerminalBackground(is_light=True, typed="a") == terminal_background.terminal_background()
        thread.join()
        assert os.isatty(slave)
    os.close(master)
    assert asked == [terminal_background.QUESTIONS]


def test_what_only_says_that_it_is_a_terminal_is_dark(monkeypatch):
    monkeypatch.delenv("COLORFGBG", raising=False)
    monkeypatch.setattr(sys, "stdin", Bytes(is_terminal=True))
    assert TerminalBackground() == terminal_background.terminal_background()


def test_a_terminal_that_does_not_answer_holds_nothing_up(monkeypatch):
    monkeypatch.setattr(terminal_background, "MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setenv("COLORFGBG", "0;15")
    master, slave = pty.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert TerminalBackground(is_light=True) == terminal_background.terminal_background()
    os.close(master)


@pytest.mark.full
def test_the_theme_follows_the_terminal_until_one_is_chosen_and_again_with_auto(world, tmp_path):
    files = ScreenFiles.next_to(tmp_path / "history.db")

    def theme_after(
        background: TerminalBackground, *commands: str, preferences: Preferences = DEFAULT_PREFERENCES
    ) -> str:
        async def main() -> str:
            app = SpecchatApp(CHAT, files, preferences=preferences, background=background)
            async with app.run_test() as pilot:
                driver = ScreenDriver(app, pilot)
                for command in commands:
                    await app.action_set_theme(command)
                await driver.pilot.pause()
                return app.theme

        return asyncio.run(main())

    light, dark = TerminalBackground(is_light=True), TerminalBackground(is_light=False)
    assert [LIGHT_THEME.name, DARK_THEME.name] == [theme_after(light), theme_after(dark)]
    assert "nord" == theme_after(light, preferences=Preferences(theme="nord"))
    assert DARK_THEME.name == theme_after(light, DARK_THEME.name) == theme_after(light)
    assert LIGHT_THEME.name == theme_after(light, "auto")
    assert {"theme": "auto"} == json.loads(files.theme.read_text())
    assert DARK_THEME.name == theme_after(dark)
