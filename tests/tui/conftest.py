"""The screen over the fake host of tests/host: the real protocol, the real client, a scripted engine."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual._wait import wait_for_idle
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from specchat.drawing.glyphs import UNICODE, Glyphs
from specchat.host import spawn
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.preferences import DEFAULT_PREFERENCES, Preferences
from tests.host.conftest import FAKE_HOST, be_patient, kill_host, new_folder, runtime  # noqa: F401 (a fixture)
from tests.host.fake import write_odd_profiles
from tests.host.fork_server import start_fork_server
from tools.screen_driver import ScreenDriver

CHAT = SessionRequest(settings=read_settings())
IDLE_SECONDS, LOOK_SECONDS = 0.2, 0.01


@pytest.fixture
def brief_idle_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual waits for an idle process after every key: two seconds while an answer streams. We do not.

    It looks every 20 ms whether the process is idle, five times a key, which was most of the time of a test.
    """
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", LOOK_SECONDS)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", LOOK_SECONDS / 20)
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", partial(wait_for_idle, max_sleep=IDLE_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _styles_are_parsed_once() -> Iterator[None]:
    """Each application parses all styles twice, the second time for its theme: an eighth of the time of a test."""
    parse, parsed = Stylesheet._parse_rules, dict[object, list[RuleSet]]()

    def parse_rules(self: Stylesheet, *source: Any, **options: Any) -> list[RuleSet]:
        key = (*source, *options.values(), *self._variables.items())
        if key not in parsed:
            parsed[key] = parse(self, *source, **options)
        return parsed[key]

    with patch.object(Stylesheet, "_parse_rules", parse_rules):
        yield


@pytest.fixture(scope="session", autouse=True)
def _frames_are_drawn_when_a_test_looks() -> Iterator[None]:
    """Textual draws each frame for nobody, a quarter of the time of a test, which draws what it reads itself."""

    def skip(
        self: Compositor, full: bool = False, screen_stack: list[Any] | None = None, simplify: bool = False
    ) -> None:
        visible_screen_stack.set(screen_stack or [])
        self._dirty_regions.clear()

    with patch.object(Compositor, "render_update", skip):
        yield


@pytest.fixture(scope="session")
def shared_folder() -> Iterator[Path]:
    """The runtime folder of the shared host, for tests that leave nothing behind."""
    folder = new_folder()
    yield folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCHAT_RUNTIME", str(folder))
        kill_host()
    shutil.rmtree(folder)


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder: a fresh one for a test that uses `runtime`, else the shared one."""
    if "runtime" in request.fixturenames:
        return request.getfixturevalue("runtime")
    folder = request.getfixturevalue("shared_folder")
    be_patient(monkeypatch)
    write_odd_profiles()
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(folder))
    monkeypatch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)
    start_fork_server()
    return folder


@pytest.fixture
def run_on_screen(world: Path, brief_idle_waits: None, tmp_path: Path):
    """Run a scenario on a screen; can be called again for a second screen."""

    def run(
        scenario: Callable[[ScreenDriver], Awaitable[None]],
        size: tuple[int, int] = (100, 30),
        session_request: SessionRequest = CHAT,
        glyphs: Glyphs = UNICODE,
        is_ready: bool = True,
        preferences: Preferences = DEFAULT_PREFERENCES,
    ) -> None:
        async def main() -> None:
            async with running_screen(tmp_path, size, session_request, glyphs, preferences) as driver:
                if is_ready:
                    await driver.wait_until(lambda: driver.chat.presenter.session_id and driver.chat.presenter.is_idle)
                await scenario(driver)

        asyncio.run(main())

    return run


@asynccontextmanager
async def running_screen(
    folder: Path,
    size: tuple[int, int],
    session_request: SessionRequest,
    glyphs: Glyphs,
    preferences: Preferences = DEFAULT_PREFERENCES,
):
    app = SpecchatApp(session_request, ScreenFiles.next_to(folder / "history.db"), glyphs, preferences)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        yield ScreenDriver(app, pilot)
