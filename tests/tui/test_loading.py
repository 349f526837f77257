"""Before another model is loaded, the TUI asks in the approval dialogue."""

from __future__ import annotations

import pytest

from specchat.drawing.glyphs import ASCII
from specchat.tui import picker


@pytest.fixture(autouse=True)
def no_grace_period(monkeypatch):
    """No grace period: the tests answer at once."""
    monkeypatch.setattr(picker, "GRACE_SECONDS", 0.0)


async def choose_plain(driver) -> None:
    """Pick a profile without a draft model, and wait for the question."""
    await driver.press("f5")
    await driver.wait_for_text("from the next request on")
    await driver.press(*"plain", "enter")
    await driver.wait_for_text("this loads other models; go on?")
    await driver.wait_until(lambda: driver.chat.bottom_area.approval and not driver.chat.bottom_area.approval.is_busy)


async def decided(driver, text: str) -> None:
    await driver.wait_until(lambda: not driver.chat.bottom_area.is_prompt_replaced)
    await driver.wait_for_text(text)
    assert driver.prompt.has_focus


def profile_in_title(driver) -> str:
    return driver.shown.splitlines()[0].partition("profile ")[2].split()[0]


def test_a_change_that_loads_another_model_needs_a_yes_and_a_no_keeps_the_old_one(run_on_screen):
    async def scenario(driver):
        await choose_plain(driver)
        await driver.wait_for_text("  embedded (20 MiB, on this disk)")
        await driver.wait_for_text("y yes  n no")
        assert "skip" not in driver.shown
        await driver.press("q", "n")

        await decided(driver, "no model is loaded; the profile stays chat")
        assert "chat" == profile_in_title(driver)

    run_on_screen(scenario)


@pytest.mark.full
@pytest.mark.parametrize("size", [(60, 18), (124, 30), (40, 10)])
def test_a_yes_changes_the_profile(run_on_screen, size):
    async def scenario(driver):
        await driver.type("half a question")
        await choose_plain(driver)
        assert all(len(line) <= size[0] for line in driver.shown.splitlines())
        await driver.press("y")

        await decided(driver, "profile plain")
        assert "half a question" == driver.prompt.text
        if driver.chat.size.height > 12:
            assert "plain" == profile_in_title(driver)

    run_on_screen(scenario, size=size)


@pytest.mark.full
def test_escape_is_a_no(run_on_screen):
    async def scenario(driver):
        await choose_plain(driver)
        assert driver.shown.isascii()
        await driver.press("escape")
        await decided(driver, "the profile stays chat")

    run_on_screen(scenario, glyphs=ASCII)


@pytest.mark.full
def test_what_waits_for_a_decision_is_not_pushed_aside_by_a_list(run_on_screen):
    async def scenario(driver):
        await choose_plain(driver)
        await driver.press("f4")
        await driver.wait_until(lambda: driver.app._notifications)
        assert driver.chat.bottom_area.approval
        await driver.press("n")
        await decided(driver, "the profile stays chat")

    run_on_screen(scenario)


@pytest.mark.full
def test_quitting_is_a_no(run_on_screen):
    workers = []

    async def scenario(driver):
        await choose_plain(driver)
        workers.append(driver.app.session_worker)

    run_on_screen(scenario)
    workers[0].join(120)

    assert not workers[0].is_alive()
    assert "chat" == workers[0].conversation.chat.conversation.profile


@pytest.mark.full
def test_a_profile_of_the_same_models_does_not_ask(run_on_screen):
    async def scenario(driver):
        await driver.run_command("/profile edit")
        await driver.wait_for_text("profile edit")
        await driver.wait_until(lambda: profile_in_title(driver) == "edit")

        assert not driver.chat.bottom_area.is_prompt_replaced

    run_on_screen(scenario)
