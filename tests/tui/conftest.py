"""The screen over the fake host of tests/host: the real protocol, the real client, a scripted engine."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot

from specchat.host import spawn
from specchat.host.client import SessionRequest
from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.chat_screen import ChatScreen
from specchat.tui.glyphs import UNICODE, Glyphs
from specchat.tui.preferences import DEFAULT_PREFERENCES, Preferences
from specchat.tui.prompt_input import PromptBox
from specchat.tui.status_bar import StatusBar
from specchat.tui.turn_widget import TurnView
from tests.host.conftest import FAKE_HOST, kill_host, runtime  # noqa: F401 (a fixture)

CHAT = SessionRequest(profile="chat")
PATIENCE_SECONDS = 90.0  # a machine that builds other things as well


@dataclass
class Seat:
    """Somebody in front of the screen."""

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
        """What stands on the screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    async def until(self, fact: Callable[[], object]) -> None:
        """Wait for something to become true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not fact():
            assert time.monotonic() < deadline, f"it did not happen; the screen:\n{self.shown}"
            await asyncio.sleep(0.01)  # the pilot would wait for a screen that may just be leaving

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.shown)

    async def press(self, *keys: str) -> None:
        """Press, and let what follows from it pass from widget to widget."""
        await self.pilot.press(*keys)
        for _ in range(3):
            await self.pilot.pause(0)

    async def submit(self, text: str) -> None:
        """A question as the palette would ask it: no keys, and any characters."""
        before = len(self.turns)
        self.chat.submit(text)
        await self.until(lambda: len(self.turns) > before)

    async def type(self, text: str) -> None:
        """Into the prompt, as a paste that is short would arrive; then the completions are closed."""
        self.prompt.set_text(text)
        await self.pilot.pause()
        if self.prompt.is_completing:
            await self.press("escape")

    async def ask(self, text: str) -> TurnView:
        """Type, send, and wait for the end."""
        before = len(self.turns)
        await self.type(text)
        await self.press("enter")
        await self.until(lambda: len(self.turns) > before)
        return await self.settled()

    async def settled(self) -> TurnView:
        """The last turn, when its answer stands there for good."""
        await self.until(lambda: self.turns and self.turns[-1].is_finished)
        await self.until(
            lambda: self.turns[-1].is_final or not self.turns[-1].answer or not self.chat.transcript.is_following
        )
        return self.turns[-1]

    async def say(self, command: str) -> None:
        """A command."""
        await self.type(command)
        await self.press("enter")


@pytest.fixture(scope="session")
def shared_folder() -> Iterator[Path]:
    """The world of those tests that leave nothing behind: one host for all of them."""
    folder = Path(tempfile.mkdtemp(prefix="spec-"))
    yield folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCHAT_RUNTIME", str(folder))
        kill_host()
    shutil.rmtree(folder)


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a host: one of its own for a test that asks for `runtime`, else the shared one."""
    if "runtime" in request.fixturenames:
        return request.getfixturevalue("runtime")
    folder = request.getfixturevalue("shared_folder")
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(folder))
    monkeypatch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)
    return folder


@pytest.fixture
def take_seat(world: Path, tmp_path: Path):
    """Run a scenario in front of a screen; may be called again for a second screen."""

    def run(
        scenario: Callable[[Seat], Awaitable[None]],
        size: tuple[int, int] = (100, 30),
        wish: SessionRequest = CHAT,
        glyphs: Glyphs = UNICODE,
        is_ready: bool = True,
        preferences: Preferences = DEFAULT_PREFERENCES,
    ) -> None:
        async def main() -> None:
            async with seated(tmp_path, size, wish, glyphs, preferences) as seat:
                if is_ready:
                    await seat.until(lambda: seat.chat.presenter.session_id and seat.chat.presenter.is_idle)
                await scenario(seat)

        asyncio.run(main())

    return run


@asynccontextmanager
async def seated(
    folder: Path,
    size: tuple[int, int],
    wish: SessionRequest,
    glyphs: Glyphs,
    preferences: Preferences = DEFAULT_PREFERENCES,
):
    app = SpecchatApp(wish, ScreenFiles.next_to(folder / "history.db"), glyphs, preferences)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        yield Seat(app, pilot)
