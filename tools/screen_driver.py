"""Drives the full-screen interface without a terminal: keys and text in, widgets and drawn text out.

Knows no engine and no test: the app decides which engine answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.tui.prompt_input import PromptBox
from specchat.tui.status_bar import StatusBar

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip

    from specchat.tui.app import SpecchatApp
    from specchat.tui.chat_screen import ChatScreen
    from specchat.tui.turn_widget import TurnView

TIMEOUT_SECONDS = 90.0  # for machines under load
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.01, 0.08  # to look at the screen is to draw all of it


@dataclass
class ScreenDriver:
    """Drives the app: keys and text in, widgets and drawn text out."""

    app: SpecchatApp
    pilot: Pilot[object]

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
    def strips(self) -> list[Strip]:
        """The drawn lines of the screen with their styles."""
        return self.app.screen._compositor.render_strips()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    @property
    def shown(self) -> str:
        """The drawn text of the screen, line by line."""
        return "\n".join(strip.text.rstrip() for strip in self.strips)

    async def wait_until(self, fact: Callable[[], object]) -> None:
        """Wait until a condition holds; a condition on `shown` is checked again with every frame."""
        deadline, poll_seconds = time.monotonic() + TIMEOUT_SECONDS, MIN_POLL_SECONDS
        while not fact():
            if time.monotonic() > deadline:
                raise AssertionError(f"the condition did not become true; the screen:\n{self.shown}")
            await asyncio.sleep(poll_seconds)  # pilot.pause() would hang while the screen closes
            poll_seconds = min(1.5 * poll_seconds, MAX_POLL_SECONDS)

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
        await self.wait_until(lambda: len(self.turns) > before and len(self.turns[-1].answer.split()) >= words)
