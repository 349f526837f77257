"""A day with the screen, in three sizes, with and without colours: nothing overflows and nothing is covered."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.widgets._toast import Toast

from specchat.tui import picker

SIZES = ((60, 18), (80, 24), (120, 35))
COLOURED = [pytest.param(size, "", id=f"{size[0]}") for size in SIZES]
PLAIN = [
    pytest.param(size, "1", id=f"{size[0]} without colours", marks=[pytest.mark.full] * (size != SIZES[0]))
    for size in SIZES
]


@pytest.mark.parametrize(("size", "no_colour"), [*COLOURED, *PLAIN])
def test_every_step_of_a_day_fits_and_covers_no_prompt(run_on_screen, tmp_path, monkeypatch, size, no_colour):
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(picker, "GRACE_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.txt").write_text("old text\n")

    async def scenario(driver):
        def check() -> None:
            assert all(cell_len(line) <= size[0] for line in driver.shown.splitlines())

        await driver.ask('say @"my notes.txt"')
        await driver.wait_for_text("attached: my notes.txt (about 3 tokens)")
        check()

        await driver.ask("say @gone.txt")
        await driver.wait_for_text("@gone.txt: there is no such file or")
        check()

        driver.app.notify(
            "a toast of many words, which stands where it covers neither the prompt nor the line below it"
        )
        await driver.wait_until(lambda: driver.chat.query(Toast) and driver.chat.query_one(Toast).region.height)
        toast = driver.chat.query_one(Toast).region
        assert not toast.overlaps(driver.prompt.region)
        assert not toast.overlaps(driver.chat.query_one("#head").region.shrink((0, 0, 1, 0)))
        check()

        await driver.submit('/edit "my notes.txt" replace old new')
        await driver.wait_for_text("Take this change?")
        check()
        await driver.press("y")
        await driver.wait_until(lambda: (tmp_path / "my notes.txt").read_text() == "new text\n")
        await driver.wait_until(lambda: not driver.chat._bottom_area.is_prompt_replaced)

        await driver.press("ctrl+r")
        await driver.wait_for_text("(open)")
        check()

    run_on_screen(scenario, size=size)
