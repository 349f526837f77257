"""Asks one question on the screen, by keys, and prints its answer and the line below it as JSON. For `real_servers`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from textual.widgets import Static

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.app import ScreenFiles, SpecchatApp
from tools.screen_driver import ScreenDriver

if TYPE_CHECKING:
    from textual.pilot import Pilot

SIZE = (100, 40)


async def answer_on_screen(profile: str, question: str, tokens: int) -> dict[str, str]:
    settings = read_settings(profile, {"sampling.temperature": 0.0, "limits.answer": tokens})
    with TemporaryDirectory() as state:
        app = SpecchatApp(SessionRequest(settings=settings), ScreenFiles(None, Path(state) / "theme"))
        async with app.run_test(size=SIZE) as pilot:
            driver = ScreenDriver(app, cast("Pilot[object]", pilot))
            await driver.wait_until(lambda: driver.chat.presenter.session_id and driver.chat.presenter.is_idle)
            turn = await driver.ask(question)
            return {"answer": turn.answer, "footer": str(turn.query_one(".footer", Static).render())}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(answer_on_screen(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
