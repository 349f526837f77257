"""The three widths of the TUI, each at its edges: the status bar, and the place of the inspector."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from specchat.tui.inspector import Inspector

STYLES = {
    "narrow": "lookup2 acc 50%",
    "normal": "auto▸lookup K2 │████░░░░ acc 50%│",
    "wide": "auto▸lookup K2 │ ████░░░░ acc 50% (ses 50%) │",
}


@pytest.mark.parametrize(
    ("columns", "style"),
    [
        (40, "narrow"),
        (80, "normal"),
        (120, "wide"),
        *(pytest.param(*edge, marks=pytest.mark.full) for edge in ((79, "narrow"), (119, "normal"), (160, "wide"))),
    ],
)
def test_the_screen_has_three_widths_and_nothing_leaves_it(run_on_screen, columns, style):
    async def scenario(driver):
        await driver.ask("guess 4")
        await driver.wait_until(lambda: STYLES[style] in driver.status)

        await driver.wait_until(lambda: all(text in driver.shown for text in ("guess 4", "so", "›")))
        assert all(cell_len(line) <= columns for line in driver.shown.splitlines())
        await driver.run_command("/inspect")
        await driver.wait_until(lambda: driver.chat.query(Inspector))
        is_beside = driver.chat.query_one(Inspector).size.width < columns - 2
        assert is_beside is (style == "wide")
        await driver.wait_for_text("inspect  turn 1")
        assert all(cell_len(line) <= columns for line in driver.shown.splitlines())

    run_on_screen(scenario, size=(columns, 30))


def test_what_is_shown_follows_a_screen_that_changes_its_width(run_on_screen):
    async def scenario(driver):
        await driver.ask("guess 4")
        for columns, style in ((79, "narrow"), (80, "normal"), (120, "wide"), (119, "normal"), (60, "narrow")):
            await driver.pilot.resize_terminal(columns, 30)
            await driver.wait_until(lambda style=style: STYLES[style] in driver.status)

    run_on_screen(scenario, size=(100, 30))
