"""The approval dialogue without an edit: what it shows, and what it posts when a key is pressed."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App

from specchat.drawing.glyphs import ASCII, UNICODE
from specchat.tui.approval import Approval
from specchat.tui.worker_messages import InputKind, InputRequest
from tests.each_row import each_row

pytestmark = pytest.mark.full

HUNK = "src/parser.py · hunk 1/3 · line 2\n class Parser:\n-\x1b[31m[/x] old\n+new\r\n+\tlast\n"
REQUEST = InputRequest(InputKind.KEY, "[y,n] ", HUNK, "look closely")


class Reviewing(App[None]):
    """The dialogue, and the messages that it posted."""

    def __init__(self, grace: float, glyphs) -> None:
        super().__init__()
        self.view, self.posted = Approval(REQUEST, glyphs, grace), []

    def compose(self):
        yield self.view

    def on_approval_answered(self, event: Approval.Answered) -> None:
        self.posted.append(event.text)

    def on_approval_stop_requested(self, _event: Approval.StopRequested) -> None:
        self.posted.append("stopped")

    @property
    def shown(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())


def review(scenario, *, size=(60, 20), grace: float = 0.0, glyphs=UNICODE) -> None:
    async def main() -> None:
        app = Reviewing(grace, glyphs)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await scenario(app, pilot)

    asyncio.run(main())


def test_a_key_for_the_call_before_does_not_answer_the_next_one():
    async def scenario(app, pilot):
        app.view._ignore_keys_until = 0.0  # the time of grace of the first call is over
        await pilot.press("y")
        app.view.show_request(InputRequest(InputKind.CONSENT, "", "execute\n run rm -r ."))
        await pilot.press("y")
        await pilot.pause()
        assert ["y"] == app.posted

    review(scenario, grace=1000.0)


@each_row("key", "yneadcsuq")
def test_every_key_answers_once_per_request(key):
    async def scenario(app, pilot):
        await pilot.press(key, "y", "y")
        await pilot.pause()
        assert [key] == app.posted

        app.view.show_request(REQUEST)
        await pilot.press("n")
        await pilot.pause()
        assert [key, "n"] == app.posted

    review(scenario)


@each_row("want, left", [(InputKind.KEY, "q"), (InputKind.LINE, ""), (InputKind.TEXT, None)])
def test_escape_goes_back_and_then_stops_what_is_being_done(want, left):
    async def scenario(app, pilot):
        app.view.show_request(InputRequest(want, "old", HUNK))
        await pilot.pause()
        await pilot.press("escape", "escape")
        await pilot.pause()

        assert [left, "stopped"] == app.posted

    review(scenario)


def test_a_line_and_a_text_are_posted_unchanged():
    async def scenario(app, pilot):
        app.view.show_request(InputRequest(InputKind.LINE, "what should be different? ", HUNK))
        await pilot.press("x", "y", "enter")
        app.view.show_request(InputRequest(InputKind.TEXT, "one\n\ttwo\n", HUNK))
        await pilot.press("a", "ctrl+s")
        await pilot.pause()

        assert ["xy", "aone\n\ttwo\n"] == app.posted

    review(scenario)


def test_a_hunk_is_shown_unchanged_with_its_position():
    async def scenario(app, _pilot):
        assert "src/parser.py · hunk 1/3 · line 2" in app.shown
        assert "-␛[31m[/x] old\n+new\n+    last" in app.shown
        assert "look closely" in app.shown
        assert "y yes" in app.shown

    review(scenario)


def test_in_ascii_its_own_texts_are_ascii():
    async def scenario(app, pilot):
        app.view.show_request(InputRequest(InputKind.KEY, "[y,n] ", "a · b\n+x\n", "c · d"))
        await pilot.pause()

        assert "a - b\n+x" in app.shown
        assert app.shown.isascii()

    review(scenario, glyphs=ASCII)


def test_what_was_just_being_typed_decides_nothing():
    async def scenario(app, pilot):
        await pilot.press("y", "a", "n")
        await pilot.pause()
        assert [] == app.posted

        await pilot.press("escape")
        await pilot.pause()
        assert ["q"] == app.posted

    review(scenario, grace=600.0)
