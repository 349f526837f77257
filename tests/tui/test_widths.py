"""The TUI at several widths: the status bar, the width of prose, and the place of the inspector."""

from __future__ import annotations

from rich.cells import cell_len

from specchat.drawing.glyphs import UNICODE
from specchat.tui.approval import Approval
from specchat.tui.inspector import MIN_SIDE_BY_SIDE_COLUMNS, Inspector
from specchat.tui.worker_messages import InputKind, InputRequest

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


def test_on_forty_columns_the_keys_that_one_needs_are_shown_whole(run_on_screen):
    hunk = "shop.py · hunk 1/1 · line 13\n" + " one\n" * 8
    request = InputRequest(InputKind.KEY, "", hunk, "look closely: " + "nothing asked for that " * 6)

    async def scenario(driver):
        await driver.wait_for_text("F1 keys  ^P menu")
        await driver.press("f1")
        await driver.wait_for_text("Esc back")
        assert "to the prompt" in " ".join(driver.shown.split())
        await driver.press("f1")
        await driver.chat.bottom_area.replace_prompt(Approval(request, UNICODE))
        await driver.wait_for_text("u undo  q quit")
        assert "Take this change?" in driver.shown and "embedded · ready" in driver.shown

    run_on_screen(scenario, size=(40, 20))


def test_prose_is_at_most_a_hundred_columns_wide_and_code_is_not(run_on_screen):
    prose, code = "word " * 60, "x = 1  # " + "y" * 120

    async def scenario(driver):
        await driver.ask(f"write {prose}\n\n```python\n{code}\n```")
        await driver.wait_for_text("y" * 120)

        lines = [line.rstrip() for line in driver.shown.splitlines() if "   word" in line]
        assert len(lines) > 2
        assert max(map(cell_len, lines)) <= 105

    run_on_screen(scenario, size=(160, 40))
