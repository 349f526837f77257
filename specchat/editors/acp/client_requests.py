"""The editor, as the thread of a session sees it: tell it something, ask it something, read and write its files.

Everything waits until the event loop has done it, so that updates stay in order and a slow editor slows nobody but its
own session. Once a turn is over nothing more is told of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any, TypeVar

from acp import RequestError
from acp.interfaces import Client
from acp.schema import AllowedOutcome, ClientCapabilities, PromptResponse, ToolCallProgress, ToolCallStart

from specchat.editors.acp.updates import OPTIONS, REJECT, asked_again, ended, work_ends
from specchat.errors import CancelledError, SpecchatError

LOOK_SECONDS = 0.02  # how often a waiting thread looks whether it was cancelled
FILE_SECONDS = 30.0  # some editors never answer a request that they do not know
FOR_EVER = float("inf")

Result = TypeVar("Result")


@dataclass(eq=False)
class Turn:
    """A prompt on its way: what ends it early, its answer, whether that has gone out, and what was begun for it."""

    outcome: asyncio.Future[PromptResponse]
    cancelled: Flag = field(default_factory=Flag)
    is_sent: Flag = field(default_factory=Flag)
    is_muted: bool = False
    begun: set[str] = field(default_factory=set[str])  # pieces of work that the editor shows as under way

    def settle(self, outcome: PromptResponse | Exception) -> None:
        """Answer it; on the loop. What comes too late changes nothing."""
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


@dataclass(frozen=True)
class Editor:
    """One session's way to the editor."""

    client: Client
    capabilities: ClientCapabilities
    loop: asyncio.AbstractEventLoop
    session: str

    @property
    def may_read(self) -> bool:
        """Does it show us its unsaved buffers?"""
        return bool(self.capabilities.fs and self.capabilities.fs.read_text_file)

    @property
    def may_write(self) -> bool:
        """Does it write files itself, so that it can show what changed?"""
        return bool(self.capabilities.fs and self.capabilities.fs.write_text_file)

    def tell(self, turn: Turn, *updates: Any) -> None:
        """Updates in order; from the thread of the session."""
        for update in updates:
            waiting = self._begin(self._tell(turn, update))
            while not self._is_done(waiting):
                pass

    async def _tell(self, turn: Turn, update: Any) -> None:
        if turn.is_muted or turn.outcome.done():
            return
        if isinstance(update, ToolCallStart):
            turn.begun.add(update.tool_call_id)
        elif isinstance(update, ToolCallProgress) and update.status in ("completed", "failed"):
            turn.begun.discard(update.tool_call_id)
        await self.announce(update)

    async def give_up(self, turn: Turn) -> None:
        """Answer for a turn that does not end by itself: nothing that was begun stays open, nothing more is heard."""
        turn.is_muted = True
        if not turn.outcome.done():
            await self.announce(*(work_ends(id, is_done=False) for id in sorted(turn.begun)))
        turn.settle(ended("cancelled"))

    async def announce(self, *updates: Any) -> None:
        """Updates that belong to no turn; on the loop. An editor that has gone misses nothing."""
        for update in updates:
            try:
                await self.client.session_update(session_id=self.session, update=update)
            except ConnectionError:
                return

    def permission(self, turn: Turn, offered: ToolCallStart) -> str:
        """Which of the options its user chose; CancelledError when the question went away."""
        asked = self.client.request_permission(session_id=self.session, tool_call=asked_again(offered), options=OPTIONS)
        try:
            outcome = self._wait(turn, asked, FOR_EVER).outcome
        except RequestError:
            return REJECT  # an editor that cannot ask has not said yes
        if not isinstance(outcome, AllowedOutcome):
            raise CancelledError("the question was cancelled")
        return outcome.option_id

    def read(self, turn: Turn, path: Path) -> str | None:
        """The text in its buffer; None when it shows none, and the disk has to do."""
        if not self.may_read:
            return None
        try:
            return self._wait(
                turn, self.client.read_text_file(session_id=self.session, path=str(path)), FILE_SECONDS
            ).content
        except (RequestError, SpecchatError, ValueError) as error:
            if isinstance(error, CancelledError):
                raise
            return None

    def write(self, turn: Turn, path: Path, text: str) -> None:
        """Have it write a file; SpecchatError when it does not, and then nobody else may try."""
        asked = self.client.write_text_file(session_id=self.session, path=str(path), content=text)
        try:
            self._wait(turn, asked, FILE_SECONDS)
        except RequestError as error:
            raise SpecchatError(f"{path}: the editor did not write it: {error}") from None

    def _wait(self, turn: Turn, asked: Coroutine[Any, Any, Result], seconds: float) -> Result:
        waiting, until = self._begin(asked), time.monotonic() + seconds
        while not self._is_done(waiting):
            if turn.cancelled.is_set():
                waiting.cancel()
                raise CancelledError("stopped")
            if time.monotonic() > until:
                waiting.cancel()
                raise SpecchatError(f"the editor did not answer within {seconds:.0f} s")
        return waiting.result()

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Have the loop do it; ConnectionError when that has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise ConnectionError("the editor has gone") from None

    def _is_done(self, waiting: Future[Any]) -> bool:
        """Wait a moment for it. A loop that ended will never do it."""
        if not wait([waiting], LOOK_SECONDS).done and self.loop.is_closed():
            raise ConnectionError("the editor has gone")
        return waiting.done()
