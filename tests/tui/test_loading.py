"""Before another model is loaded, the screen asks, in the place where edits are decided."""

from __future__ import annotations

import pytest

from specchat.tui import choice_lists
from specchat.tui.glyphs import ASCII


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nobody is typing when the question appears."""
    monkeypatch.setattr(choice_lists, "GRACE_SECONDS", 0.0)


async def choose_plain(seat) -> None:
    """A profile without a draft model, from the list; and the question that it leads to."""
    await seat.press("f5")
    await seat.sees("from the next question on")
    await seat.press(*"nobody", "enter")
    await seat.sees("this loads other models; go on?")
    await seat.until(lambda: seat.chat._slot.approval and not seat.chat._slot.approval.is_busy)


async def decided(seat, said: str) -> None:
    await seat.until(lambda: not seat.chat._slot.is_swapped)
    await seat.sees(said)
    assert seat.prompt.has_focus


def profile_in_title(seat) -> str:
    return seat.shown.splitlines()[0].partition("profile ")[2].split()[0]


def test_a_change_that_loads_another_model_is_asked_about_and_a_no_keeps_the_old_one(take_seat):
    async def scenario(seat):
        await choose_plain(seat)
        await seat.sees("  embedded (20 MiB, on this disk)")
        await seat.sees("y yes  n no")
        assert "skip" not in seat.shown
        await seat.press("q", "n")

        await decided(seat, "nothing is loaded; the profile stays chat")
        assert "chat" == profile_in_title(seat)

    take_seat(scenario)


@pytest.mark.full
@pytest.mark.parametrize("size", [(60, 18), (124, 30), (40, 10)])
def test_a_yes_changes_the_profile(take_seat, size):
    async def scenario(seat):
        await seat.type("half a question")
        await choose_plain(seat)
        assert all(len(line) <= size[0] for line in seat.shown.splitlines())
        await seat.press("y")

        await decided(seat, "profile plain")
        assert "half a question" == seat.prompt.text
        if seat.chat.size.height > 12:
            assert "plain" == profile_in_title(seat)

    take_seat(scenario, size=size)


@pytest.mark.full
def test_escape_is_a_no(take_seat):
    async def scenario(seat):
        await choose_plain(seat)
        assert seat.shown.isascii()
        await seat.press("escape")
        await decided(seat, "the profile stays chat")

    take_seat(scenario, glyphs=ASCII)


@pytest.mark.full
def test_what_waits_for_a_decision_is_not_pushed_aside_by_a_list(take_seat):
    async def scenario(seat):
        await choose_plain(seat)
        await seat.press("f4")
        await seat.until(lambda: seat.app._notifications)
        assert seat.chat._slot.approval
        await seat.press("n")
        await decided(seat, "the profile stays chat")

    take_seat(scenario)


@pytest.mark.full
def test_who_leaves_has_not_agreed(take_seat):
    partners = []

    async def scenario(seat):
        await choose_plain(seat)
        partners.append(seat.app.partner)

    take_seat(scenario)
    partners[0]._thread.join(10)

    assert not partners[0]._thread.is_alive()
    assert "chat" == partners[0]._talk.conversation.profile


@pytest.mark.full
def test_a_profile_of_the_same_models_does_not_ask(take_seat):
    async def scenario(seat):
        await seat.say("/profile edit")
        await seat.sees("profile edit")
        await seat.until(lambda: profile_in_title(seat) == "edit")

        assert not seat.chat._slot.is_swapped

    take_seat(scenario)
