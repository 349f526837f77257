"""The screen in the language of the user: notes, hints, keys and pickers, and no answer."""

from __future__ import annotations

import pytest

from tests.test_own_text import in_brackets, in_language  # noqa: F401 (fixtures)


@pytest.mark.full
def test_the_screen_is_translated_and_an_answer_is_not(run_on_screen, in_brackets):  # noqa: F811
    async def scenario(driver):
        await driver.wait_for_text("[Enter sends, Ctrl+J new line, @ file, / command]")
        await driver.ask("write no such file")
        await driver.wait_for_text("no such file")
        assert "[no such file" not in driver.shown
        await driver.run_command("/back")
        await driver.run_command("/help")
        await driver.wait_for_text("[print this conversation]")
        await driver.press("f1")
        await driver.wait_for_text("[stop the answer and keep what is there]")
        await driver.press("escape")
        await driver.run_command("/model")
        await driver.wait_for_text("[type to filter]")

    run_on_screen(scenario, size=(120, 60))
