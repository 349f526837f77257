"""What the command line brings to the screen: a greeting, a question, and text that was typed before it opened."""

import asyncio

from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.terminal_background import TerminalBackground
from tests.tui.conftest import CHAT, ScreenDriver


def test_the_greeting_stands_below_the_welcome_and_typed_text_is_in_the_prompt(world, tmp_path):
    background = TerminalBackground(is_light=True, typed="h")

    async def main() -> None:
        files = ScreenFiles.next_to(tmp_path / "history.db")
        app = SpecchatApp(CHAT, files, greeting="take a better one [b]now[/b]", background=background)
        async with app.run_test(notifications=True) as pilot:
            driver = ScreenDriver(app, pilot)
            await driver.wait_for_text("take a better one [b]now[/b]")
            await driver.wait_until(lambda: driver.prompt.text == "h")
            await pilot.press("i")
            assert "hi" == driver.prompt.text
            assert not app._notifications

    asyncio.run(main())


def test_a_question_of_the_command_line_is_asked_at_once(world, tmp_path):
    async def main() -> None:
        app = SpecchatApp(CHAT, ScreenFiles.next_to(tmp_path / "history.db"), question="count 3", greeting="private")
        async with app.run_test(notifications=True) as pilot:
            driver = ScreenDriver(app, pilot)
            assert ["private"] == [each.message for each in app._notifications]
            await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_final)
            assert driver.turns[-1].answer.startswith("word0 word1 seed")

    asyncio.run(main())
