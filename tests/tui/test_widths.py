"""The three widths of the TUI, each at its edges: the status bar, and the place of the inspector."""

from __future__ import annotations

from rich.cells import cell_len

from specchat.tui.inspector import MIN_SIDE_BY_SIDE_COLUMNS, Inspector

STYLES = {
    "narrow": "lookup2 acc 50%",
    "normal": "auto▸lookup K2 │████░░░░ acc 50%│",
    "wide": "auto▸lookup K2 │ ████░░░░ acc 50% (ses 50%) │",
}


def test_the_screen_has_three_widths_and_nothing_leaves_it(run_on_screen):
    async def scenario(driver):
        async def resize(columns: int) -> None:
            await driver.pilot.resize_terminal(columns, 30)
            await driver.wait_until(lambda: all(cell_len(line) <= columns for line in driver.shown.splitlines()))

        await driver.ask("guess 4")
        for columns, style in ((79, "narrow"), (80, "normal"), (119, "normal"), (120, "wide"), (160, "wide")):
            await resize(columns)
            await driver.wait_until(lambda style=style: STYLES[style] in driver.status)
            await driver.wait_until(lambda: all(text in driver.shown for text in ("guess 4", "so", "›")))
        await driver.run_command("/inspect")
        await driver.wait_for_text("inspect  turn 1")
        inspector = driver.chat.query_one(Inspector)
        for columns in (120, 119, 40):
            await resize(columns)
            await driver.wait_until(
                lambda columns=columns: (inspector.size.width < columns - 2) is (columns == MIN_SIDE_BY_SIDE_COLUMNS)
            )

    run_on_screen(scenario, size=(40, 30))
