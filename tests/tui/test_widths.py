"""The TUI at several widths: the status bar, the width of prose, and the place of the inspector."""

from __future__ import annotations

from rich.cells import cell_len

from specchat.tui.inspector import MIN_SIDE_BY_SIDE_COLUMNS, Inspector

STYLES = {
    "narrow": "embedded · ",
    "normal": "accepted 50 % · ████░░░░",
}


def test_nothing_leaves_the_screen_at_any_width(run_on_screen):
    async def scenario(driver):
        async def resize(columns: int) -> None:
            await driver.pilot.resize_terminal(columns, 30)
            await driver.wait_until(lambda: all(cell_len(line) <= columns for line in driver.shown.splitlines()))

        await driver.ask("guess 4")
        for columns, style in ((50, "narrow"), (80, "normal"), (120, "normal"), (160, "normal")):
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


def test_prose_is_at_most_a_hundred_columns_wide_and_code_is_not(run_on_screen):
    prose, code = "word " * 60, "x = 1  # " + "y" * 120

    async def scenario(driver):
        await driver.ask(f"write {prose}\n\n```python\n{code}\n```")
        await driver.wait_for_text("y" * 120)

        lines = [line.rstrip() for line in driver.shown.splitlines() if "   word" in line]
        assert len(lines) > 2
        assert max(map(cell_len, lines)) <= 105

    run_on_screen(scenario, size=(160, 40))
