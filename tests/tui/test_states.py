"""Every state of the TUI at two widths: its texts, and that nothing overflows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from rich.cells import cell_len

pytestmark = pytest.mark.full  # the default run compares the frames of test_snapshots.py

NARROW, WIDE = (60, 20), (130, 36)


@dataclass(frozen=True)
class State:
    """How to get there, and the texts on the narrow and on the wide screen."""

    name: str
    keys: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()  # requests that are answered first
    pending: str = ""  # a request that is being answered
    narrow: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()


STATES = [
    State("empty", narrow=("Ask something below", " ready"), wide=("profile chat · embedded", "embedded · ready")),
    State(
        "reading",
        pending="read",
        narrow=("reading 3 tokens: 33 % · Esc stops",),
        wide=("reading 3 tokens: 33 % · Esc stops",),
    ),
    State(
        "writing",
        pending="slowly 100000",
        narrow=("word3", "accepted 50 %"),
        wide=("accepted 50 % · ████░░░░",),
    ),
    State("answered", answered=("count 4",), narrow=("word0", "8 tokens ·"), wide=("8 tokens ·",)),
    State("failed", answered=("fail",), narrow=("failed: too long",), wide=("failed: too long",)),
    State("variants", keys=("f4",), narrow=("drafter, from",), wide=("one token per step", "type to filter")),
    State("profiles", keys=("f5",), narrow=("profile, from the next",), wide=("type to filter",)),
    State("commands", keys=("slash",), narrow=("/help",), wide=("start a new conversation",)),
    State(
        "editing",
        answered=("count 2",),
        keys=("shift+tab", "e"),
        narrow=("this becomes another version",),
        wide=("› count 2",),
    ),
    State(
        "editing a file",
        pending="/edit pyproject.toml read",
        narrow=("reading 3 tokens: 33 %",),
        wide=("reading 3 tokens: 33 % ·",),
    ),
    State(
        "refused",
        pending="/edit gone.py rename it",
        narrow=("gone.py: there is no such file",),
        wide=("gone.py: there is no such file",),
    ),
    State("sessions", keys=("ctrl+r",), narrow=("conversations",), wide=("F2 rename",)),
    State("keys", keys=("f1",), narrow=("The keys you need",), wide=("While an answer is selected",)),
    State("selecting", answered=("count 2",), keys=("shift+tab",), narrow=("Esc back",), wide=("answer 1 of 1",)),
    State("code", answered=("write ```python\nx = 1\n```",), narrow=("x = 1",), wide=("x = 1",)),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_every_state_fits_a_narrow_and_a_wide_screen(run_on_screen, state):
    async def scenario(driver):
        await get_there(driver, state)
        for text in state.narrow:
            await driver.wait_for_text(text)
        assert all(cell_len(line) <= NARROW[0] for line in driver.shown.splitlines())

        await driver.pilot.resize_terminal(*WIDE)
        for text in state.wide:
            await driver.wait_for_text(text)
        assert all(cell_len(line) <= WIDE[0] for line in driver.shown.splitlines())
        driver.chat.stop_answer()

    run_on_screen(scenario, size=NARROW)


async def get_there(driver, state: State) -> None:
    for question in state.answered:
        await driver.submit(question)
        await driver.wait_for_final_turn()
    if state.pending:
        await driver.submit(state.pending)
    if state.keys:
        await driver.press(*state.keys)
