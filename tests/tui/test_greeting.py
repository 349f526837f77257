"""What the command line brings to the screen: a notification, which blocks nothing, and a question."""

import asyncio

from specchat.tui.app import ScreenFiles, SpecchatApp
from tests.tui.conftest import CHAT, ScreenDriver


def test_the_greeting_leaves_the_prompt_usable(world, tmp_path):
    async def main() -> None:
        app = SpecchatApp(CHAT, ScreenFiles.next_to(tmp_path / "history.db"), greeting="take a better one [b]now[/b]")
        async with app.run_test(notifications=True) as pilot:
            driver = ScreenDriver(app, pilot)
            await driver.wait_until(
                lambda: [each.message for each in app._notifications] == ["take a better one [b]now[/b]"]
            )
            await pilot.press("h", "i")
            assert "hi" == driver.prompt.text

    asyncio.run(main())


def test_a_question_of_the_command_line_is_asked_at_once(world, tmp_path):
    async def main() -> None:
        app = SpecchatApp(CHAT, ScreenFiles.next_to(tmp_path / "history.db"), question="count 3")
        async with app.run_test() as pilot:
            driver = ScreenDriver(app, pilot)
            await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_final)
            assert driver.turns[-1].answer.startswith("word0 word1 seed")

    asyncio.run(main())
