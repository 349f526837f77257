"""The status bar as a widget: its tooltip."""

from __future__ import annotations

from specchat.tui.status_bar import StatusBar


def test_the_tooltip_shows_the_reason(run_on_screen):
    async def scenario(driver):
        bar = driver.chat.query_one(StatusBar)
        assert bar.tooltip is None

        await driver.ask("count 4")

        await driver.wait_until(lambda: str(bar.tooltip) == "because it is a fake")

    run_on_screen(scenario)
