"""Films a first conversation on the screen: a question, its answer with the live acceptance, an edit with hunks.

`draw_screens.py` films it with the starter model. Frames are taken while the steps are walked; a longer wait than
`MOST_SECONDS` is cut to it, and the ends of steps are held. Knows no model.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from specchat.tui.app import SpecchatApp
from tools.moving_picture import Frame, Row, draw_moving, row_of
from tools.screen_driver import ScreenDriver
from tools.screen_walk import (
    Action,
    Fact,
    Requests,
    Step,
    Walk,
    Walker,
    can_be_reviewed,
    is_answered,
    is_connected,
    is_in_prompt,
    press,
    type_keys,
    wait_until,
)

SIZE = 92, 26
FILMED_FOLDER, FILMED_FILE = "coast", "lighthouse.py"  # the folder is one of temporary files
FILMED_TEXT = '''\
def beam(height):
    """How far the light is seen, in kilometres."""
    return 3.57 * height**0.5


def name(tower):
    return tower["name"].title()


def built(tower):
    return int(tower["built"])


def describe(tower):
    return f"{name(tower)}: {beam(tower['height'])} km"
'''
CHANGE = "rename beam to visible_range"
FRAME_SECONDS, MOST_SECONDS, HELD_SECONDS = 0.12, 0.2, 2.0
TITLE = "specchat: a question, its answer with the share of right drafts, and an edit that is reviewed hunk by hunk"


def decide(key: str, fact: Fact) -> Action:
    """Press a key until the fact holds: one that is pressed before a hunk can have been seen does not count."""

    async def act(walker: Walker) -> None:
        while not fact(walker):
            if can_be_reviewed(walker):
                await walker.driver.press(key)
            await asyncio.sleep(FRAME_SECONDS)

    return act


FILM = (
    Step("an empty chat", [wait_until(is_connected)], ["Ask something below"]),
    Step("a question is typed", [type_keys("{question}")], ["{question}"]),
    Step("its answer", [press("enter"), wait_until(is_answered)], [" tokens ·"]),
    Step("an edit is asked for", [type_keys(f"/edit {FILMED_FILE} {CHANGE}")]),
    Step("its first hunk", [press("enter"), wait_until(can_be_reviewed)], ["Take this change? y yes n no"]),
    Step(
        "its second hunk",
        [decide("y", lambda walker: "hunk 2/2" in walker.driver.shown)],
        ["Take this change? y yes n no"],
    ),
    Step("both are taken", [decide("y", is_in_prompt)], ["applied 2/2 hunks", "/undo"]),
)


@dataclass
class Film:
    """The frames that were taken so far."""

    taken: list[tuple[float, tuple[Row, ...]]] = field(default_factory=list)
    held: set[int] = field(default_factory=set)  # the numbers of frames at the ends of steps

    def take(self, driver: ScreenDriver) -> None:
        rows = tuple(map(row_of, driver.strips))
        if not self.taken or rows != self.taken[-1][1]:
            self.taken.append((time.monotonic(), rows))

    def hold(self, driver: ScreenDriver, _step: Step) -> None:
        self.take(driver)
        self.held.add(len(self.taken) - 1)

    async def begin(self, walker: Walker) -> None:
        """Take frames beside the steps until the app ends."""
        self._task = asyncio.create_task(self._go_on(walker.driver))

    async def _go_on(self, driver: ScreenDriver) -> None:
        while driver.app.is_running and driver.app.screen is driver.chat:
            self.take(driver)
            await asyncio.sleep(FRAME_SECONDS)

    def frames(self) -> list[Frame]:
        ends = [moment for moment, _rows in self.taken[1:]] + [self.taken[-1][0]]
        return [
            Frame(rows, HELD_SECONDS if number in self.held else min(max(end - moment, FRAME_SECONDS), MOST_SECONDS))
            for number, ((moment, rows), end) in enumerate(zip(self.taken, ends, strict=True))
        ]


def film_screen(open_app: Callable[[Path], SpecchatApp], requests: Requests) -> str:
    """Walk the steps of the film with an app, in a folder of its own that has the file, and return its picture."""
    film = Film()
    walk = Walk([Step("the film begins", [film.begin]), *FILM], requests, film.hold)
    folder = Path(tempfile.gettempdir()) / FILMED_FOLDER
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as private, contextlib.chdir(folder):
        Path(FILMED_FILE).write_text(FILMED_TEXT, encoding="utf-8")
        walk.run(open_app(Path(private)), SIZE)
    walk.check()
    return draw_moving(film.frames(), TITLE)
