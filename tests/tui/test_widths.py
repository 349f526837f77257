"""The three widths of the screen, each at its edges: what the status line shows, and where the inspector stands."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from specchat.tui.inspector import Inspector

STYLES = {
    "narrow": "lookup2 50%",
    "normal": "auto▸lookup K2 │acc 50/50%│",
    "wide": "auto▸lookup K2 │ acc 50% (ses 50%) │",
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
def test_the_screen_has_three_widths_and_nothing_leaves_it(take_seat, columns, style):
    async def scenario(seat):
        await seat.ask("guess 4")
        await seat.until(lambda: STYLES[style] in seat.status)

        assert all(cell_len(line) <= columns for line in seat.shown.splitlines())
        assert "guess 4" in seat.shown and "so" in seat.shown and "›" in seat.shown
        await seat.say("/inspect")
        await seat.until(lambda: seat.chat.query(Inspector))
        is_beside = seat.chat.query_one(Inspector).size.width < columns - 2
        assert is_beside is (style == "wide")
        assert all(cell_len(line) <= columns for line in seat.shown.splitlines())

    take_seat(scenario, size=(columns, 30))


def test_what_is_shown_follows_a_screen_that_changes_its_width(take_seat):
    async def scenario(seat):
        await seat.ask("guess 4")
        for columns, style in ((79, "narrow"), (80, "normal"), (120, "wide"), (119, "normal"), (60, "narrow")):
            await seat.pilot.resize_terminal(columns, 30)
            await seat.until(lambda style=style: STYLES[style] in seat.status)

    take_seat(scenario, size=(100, 30))
