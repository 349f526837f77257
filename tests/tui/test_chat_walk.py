"""A walk through a chat at three sizes, with and without colours: keys, settings, versions, a queue, and leaving."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from specchat.tui.picker import Picker

SIZES = [(80, 24), (120, 35), (60, 18)]
IN_EVERY_RUN = [((80, 24), True), ((60, 18), False)]
WALKS = [
    pytest.param(size, has_colours, marks=[] if (size, has_colours) in IN_EVERY_RUN else [pytest.mark.full])
    for size in SIZES
    for has_colours in (True, False)
]


def joined(shown: str) -> str:
    """The text of the screen without its line breaks, which depend on the width."""
    return " ".join(shown.split())


@pytest.mark.parametrize(("size", "has_colours"), WALKS)
def test_a_user_finds_the_way_at_every_size(run_on_screen, monkeypatch, size, has_colours):
    if not has_colours:
        monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(driver):
        async def see(*texts: str) -> None:
            for text in texts:
                await driver.wait_until(lambda text=text: text in joined(driver.shown))
            assert all(cell_len(line) <= size[0] for line in driver.shown.splitlines())

        await driver.press("f1")
        await see("The keys you need", "Enter send")
        await driver.press("escape")
        await driver.ask("something")
        await driver.press("shift+tab")
        await see("answer 1 of 1 is selected", "r answer again", "Esc back")
        await driver.press("r")
        await see("<2/2>")
        await driver.press("shift+tab", "left")
        await see("<1/2>")
        await driver.press("escape")
        await driver.run_command("/temperature 0.7")
        await see("temperature: 0.7")
        await driver.press("f4")
        await see("drafter, from the next request on", "one token per step")
        await driver.press("escape")
        await driver.press("f6")
        await see("model, from the next request on", "embedded")
        await driver.press("escape")
        await driver.wait_until(lambda: not driver.chat.query(Picker))
        await driver.start_answer()
        await driver.run_command("write waited")
        await see("next: write waited")
        await driver.press("ctrl+q")
        await see("a question waits to be answered", "stay and wait")
        await driver.press("enter")
        await driver.wait_until(lambda: not driver.chat.query(Picker))
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[-1].answer == "waited" and driver.turns[-1].is_finished)

    run_on_screen(scenario, size=size)
