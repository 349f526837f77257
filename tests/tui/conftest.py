"""The screen over the fake host of tests/host: the real protocol, the real client, a scripted engine."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from textual._wait import wait_for_idle
from textual.pilot import Pilot

from specchat.drawing.glyphs import UNICODE, Glyphs
from specchat.host import spawn
from specchat.host.client import SessionRequest
from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.chat_screen import ChatScreen
from specchat.tui.preferences import DEFAULT_PREFERENCES, Preferences
from specchat.tui.prompt_input import PromptBox
from specchat.tui.status_bar import StatusBar
from specchat.tui.turn_widget import TurnView
from tests.host.conftest import FAKE_HOST, kill_host, runtime  # noqa: F401 (a fixture)

CHAT = SessionRequest(profile="chat")
TIMEOUT_SECONDS = 90.0  # for machines under load
IDLE_SECONDS = 0.2


@dataclass
class ScreenDriver:
    """Drives the app: keys and text in, widgets and drawn text out."""

    app: SpecchatApp
    pilot: Pilot[None]

    @property
    def chat(self) -> ChatScreen:
        return self.app.chat_screen

    @property
    def prompt(self) -> PromptBox:
        return self.chat.query_one(PromptBox)

    @property
    def turns(self) -> list[TurnView]:
        return self.chat.transcript.turns

    @property
    def status(self) -> str:
        return self.chat.query_one(StatusBar).line

    @property
    def shown(self) -> str:
        """The drawn text of the screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    async def wait_until(self, fact: Callable[[], object]) -> None:
        """Wait until a condition holds; a condition on `shown` is checked again with every frame."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not fact():
            assert time.monotonic() < deadline, f"the condition did not become true; the screen:\n{self.shown}"
            await asyncio.sleep(0.01)  # pilot.pause() would hang while the screen closes

    async def wait_for_text(self, text: str) -> None:
        await self.wait_until(lambda: text in self.shown)

    async def press(self, *keys: str) -> None:
        """Press keys, and let their effects pass from widget to widget."""
        await self.pilot.press(*keys)
        await self.settle()

    async def submit(self, text: str) -> None:
        """Submit a request as the command palette does: no keys, any characters."""
        before = len(self.turns)
        self.chat.submit(text)
        await self.wait_until(lambda: len(self.turns) > before)

    async def type(self, text: str) -> None:
        """Insert into the prompt like a short paste; then close the completions."""
        self.prompt.set_text(text)
        await self.pilot.pause()
        if self.prompt.is_completing:
            await self.press("escape")

    async def ask(self, text: str) -> TurnView:
        """Type, send, and wait for the final turn."""
        before = len(self.turns)
        await self.type(text)
        await self.press("enter")
        await self.wait_until(lambda: len(self.turns) > before)
        return await self.wait_for_final_turn()

    async def wait_for_final_turn(self) -> TurnView:
        """The last turn, when its answer is final and drawn."""
        await self.wait_until(lambda: self.turns and self.turns[-1].is_finished)
        await self.wait_until(
            lambda: self.turns[-1].is_final or not self.turns[-1].answer or not self.chat.transcript.is_following
        )
        await self.settle()
        return self.turns[-1]

    async def settle(self) -> None:
        """Let pending messages pass from widget to widget, so that the next frame shows their effect."""
        for _ in range(3):
            await self.pilot.pause(0)

    async def run_command(self, command: str) -> None:
        """Type a command and send it."""
        await self.type(command)
        await self.press("enter")

    async def start_answer(self, text: str = "slowly 100000", words: int = 2) -> None:
        """Type and send a request, and wait until its answer has this many words. They may have left the screen."""
        before = len(self.turns)
        await self.run_command(text)
        await self.wait_until(lambda: len(self.turns) > before and f"word{words - 1} " in self.turns[-1].answer)


@pytest.fixture
def brief_idle_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual waits for an idle process after every key: two seconds while an answer streams. We do not."""
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", partial(wait_for_idle, max_sleep=IDLE_SECONDS))


@pytest.fixture(scope="session")
def shared_folder() -> Iterator[Path]:
    """The runtime folder of the shared host, for tests that leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="spec-"))
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
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(folder))
    monkeypatch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)
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
