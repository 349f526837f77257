"""Looking at an edit, hunk by hunk."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App

from specchat.tui.approval import Approval, Part
from specchat.tui.glyphs import UNICODE

PARTS = [
    Part("class Parser", (" class Parser:", "-    def feed(self):", "+    def push(self):")),
    Part("[bold]", ("-\x1b[31m[/x] old", "+new\r\n")),
    Part("the end", ("+\tlast",)),
]


class Reviewing(App[None]):
    """The view, and what came of it."""

    def __init__(self, grace: float = 0.0) -> None:
        super().__init__()
        self.grace, self.came = grace, []

    def compose(self):
        yield Approval("src/parser.py", PARTS, UNICODE, self.grace)

    def on_approval_decided(self, event: Approval.Decided) -> None:
        self.came.append(event.taken)

    def on_approval_left(self, _event: Approval.Left) -> None:
        self.came.append(None)

    @property
    def shown(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())


def review(scenario, *, size=(60, 14), grace: float = 0.0) -> None:
    async def main() -> None:
        app = Reviewing(grace)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await scenario(app, pilot)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("keys", "came"),
    [
        ("yny", (True, False, True)),
        ("nnn", (False, False, False)),
        ("na", (False, True, True)),
        ("a", (True, True, True)),
        ("yunyy", (False, True, True)),
        ("yq", None),
        ("yyyyyy", (True, True, True)),
    ],
)
def test_every_hunk_is_decided(keys, came):
    async def scenario(app, pilot):
        await pilot.press(*keys)
        await pilot.pause()

        assert [came] == app.came

    review(scenario)


def test_escape_leaves_the_file_as_it_is():
    async def scenario(app, pilot):
        await pilot.press("escape")
        await pilot.pause()

        assert [None] == app.came

    review(scenario)


def test_a_hunk_is_shown_as_it_is_and_says_where_it_is():
    async def scenario(app, pilot):
        assert "src/parser.py · hunk 1/3 · class Parser" in app.shown
        assert "-    def feed(self):\n+    def push(self):" in app.shown
        await pilot.press("y")
        await pilot.pause()
        assert "hunk 2/3 · [bold]" in app.shown
        assert "-␛[31m[/x] old\n+new" in app.shown
        await pilot.press("n")
        await pilot.pause()
        assert "+    last" in app.shown
        assert "y take" in app.shown

    review(scenario)


def test_what_was_just_being_typed_decides_nothing():
    async def scenario(app, pilot):
        await pilot.press("y", "a", "n")
        await pilot.pause()
        assert [] == app.came
        assert "hunk 1/3" in app.shown

        await pilot.press("q")
        await pilot.pause()
        assert [None] == app.came

    review(scenario, grace=600.0)


def test_it_takes_the_place_of_the_prompt_and_gives_it_back(take_seat):
    async def scenario(seat):
        await seat.chat._slot.swap(Approval("src/parser.py", PARTS, UNICODE))
        await seat.sees("hunk 1/3")
        assert not seat.prompt.has_focus
        await seat.press("y", "q")
        await seat.until(lambda: seat.prompt.has_focus)

        assert "hunk" not in seat.shown

    take_seat(scenario)
