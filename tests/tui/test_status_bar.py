"""The last line of the screen as a widget: what it tells whoever points at it."""

from __future__ import annotations

from specchat.tui.status_bar import StatusBar


def test_the_reason_is_told_to_whoever_points_at_the_line(take_seat):
    async def scenario(seat):
        bar = seat.chat.query_one(StatusBar)
        assert bar.tooltip is None

        await seat.ask("count 4")

        await seat.until(lambda: str(bar.tooltip) == "because it is a fake")

    take_seat(scenario)
