"""Thinking on the screen: folded, dimmed and timed, unfolded by a key or a click, and never part of the answer."""

from __future__ import annotations

import pytest

from specchat.drawing.glyphs import UNICODE
from specchat.tui.folded_text import ThinkingView


async def thought(driver):
    turn = await driver.ask("think 3")
    await driver.wait_for_text("▸ thought for 3 s")
    return turn


def test_a_thought_is_folded_with_its_time_and_a_key_or_a_click_unfolds_it(run_on_screen):
    async def scenario(driver):
        turn = await thought(driver)
        view = turn.query_one(ThinkingView)
        assert turn.answer == "so it is"
        assert view.text == "thought0 thought1 thought2 "
        assert "thought0" not in driver.shown

        await driver.press("shift+tab", "t")
        await driver.wait_for_text("▾ thought for 3 s")
        await driver.wait_for_text("thought0 thought1 thought2")
        await driver.press("t")
        await driver.wait_until(lambda: "thought0" not in driver.shown)
        await driver.pilot.click(ThinkingView.Heading)
        await driver.wait_for_text("thought0 thought1 thought2")
        view.add("hm", 7.4)
        await driver.wait_for_text(f"▾ thinking{UNICODE.ellipsis} 7 s")
        await driver.wait_for_text("thought2 hm")

    run_on_screen(scenario)


@pytest.mark.full
def test_a_stored_thought_is_shown_again_and_the_key_does_nothing_without_one(run_on_screen):
    async def scenario(driver):
        turn = await driver.ask("count 3")
        await driver.press("shift+tab", "t", "escape")
        assert not turn.query_one(ThinkingView).is_unfolded
        assert not turn.query_one(ThinkingView).display

        await thought(driver)
        await driver.run_command("/fork")
        await driver.wait_for_text("a copy of this conversation")
        await driver.wait_for_text("▸ thought for 3 s")
        assert driver.turns[-1].query_one(ThinkingView).text == "thought0 thought1 thought2 "

    run_on_screen(scenario)
