"""The status bar as a widget: its tooltip, its gauges and their colours."""

from __future__ import annotations

import pytest

from specchat.chat.events import CommittedToken, Routed, StepDone
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui import background_requests
from specchat.tui.status_bar import StatusBar


@pytest.mark.full
def test_the_tooltip_shows_the_reason(run_on_screen):
    async def scenario(driver):
        bar = driver.chat.query_one(StatusBar)
        assert bar.tooltip is None

        await driver.ask("count 4")

        await driver.wait_until(lambda: str(bar.tooltip) == "because it is a fake")

    run_on_screen(scenario)


def test_the_context_gauge_has_the_window_that_the_engine_reports(run_on_screen):
    """The fake profile `narrow` has 512 tokens, and the limit of its profile is another."""

    async def scenario(driver):
        await driver.press("f7")
        await driver.wait_until(lambda: "context 0/512" in driver.chat.query_one(StatusBar).line)

        driver.app.worker_messages.put(Routed("auto", 16, "repeats", 7, context_window=256))

        await driver.wait_until(lambda: "/256" in driver.chat.query_one(StatusBar).line)

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("narrow")))


def test_the_context_gauge_is_absent_while_the_window_is_unknown(run_on_screen):
    async def scenario(driver):
        await driver.press("f7")
        await driver.wait_until(lambda: driver.chat.query_one(StatusBar).is_detailed)
        assert "context" not in driver.chat.query_one(StatusBar).line

    run_on_screen(scenario)


def test_the_memory_gauge_has_what_the_engine_process_holds(run_on_screen, monkeypatch):
    sizes = {"held": 3 * 2**30}
    monkeypatch.setattr(background_requests, "resident_bytes", lambda _process: sizes["held"])

    async def scenario(driver):
        await driver.press("f7")
        await driver.wait_until(lambda: "memory 3.0G" in driver.chat.query_one(StatusBar).line)
        sizes["held"] = 0  # a system that does not report it: the kilobyte of the models
        await driver.ask("count 2")
        await driver.wait_until(lambda: "memory 0M" in driver.chat.query_one(StatusBar).line)

    run_on_screen(scenario)


def test_the_acceptance_bar_has_a_colour_for_each_part(run_on_screen):
    drafted = StepDone(
        (1, 2), (0, 1), (CommittedToken(1, b"a", "lookup"), CommittedToken(9, b"b", "target")), 0.0, 0.01
    )
    plain = StepDone((), (), (CommittedToken(2, b"b", "target"),), 0.0, 0.01)

    async def scenario(driver):
        for event in (Routed("auto", 16, "repeats", 7), drafted, plain):
            driver.app.worker_messages.put(event)
        bar = driver.chat.query_one(StatusBar)
        await driver.wait_until(lambda: "██░░····" in bar.line)

        styles = {bar.render().plain[span.start : span.end]: span.style for span in bar.render().spans}
        assert len({styles["██"], styles["░░"], styles["····"]}) == 3

    run_on_screen(scenario)


def test_a_key_shows_the_other_numbers_and_the_short_line_again(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 4")
        brief = driver.status
        await driver.press("f7")
        await driver.wait_until(lambda: driver.status.startswith("auto▸lookup · 2 draft tokens · 2.0 tokens/step"))
        await driver.run_command("/numbers")
        await driver.wait_until(lambda: driver.status == brief)

    run_on_screen(scenario)
