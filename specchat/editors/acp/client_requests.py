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

from specchat.editors.acp.session_updates import (
    PERMISSION_OPTIONS,
    REJECT,
    permission_tool_call,
    prompt_response,
    tool_call_end,
)
from specchat.errors import CancelledError, SpecchatError

POLL_SECONDS = 0.02  # how often a waiting thread looks whether it was cancelled
FILE_TIMEOUT_SECONDS = 30.0  # some editors never answer a request that they do not know
NO_TIMEOUT_SECONDS = float("inf")

Result = TypeVar("Result")


@dataclass(eq=False)
class PromptTurn:
    """A prompt on its way: what ends it early, its answer, whether that has gone out, and what was begun for it."""

    response: asyncio.Future[PromptResponse]
    cancelled: Flag = field(default_factory=Flag)
    is_sent: Flag = field(default_factory=Flag)
    is_muted: bool = False
    open_tool_calls: set[str] = field(default_factory=set[str])  # pieces of work that the editor shows as under way

    def resolve(self, response: PromptResponse | Exception) -> None:
        """Answer it; on the loop. What comes too late changes nothing."""
        if self.response.done():
            return
        if isinstance(response, Exception):
            self.response.set_exception(response)
        else:
            self.response.set_result(response)


@dataclass(frozen=True)
class EditorClient:
    """One session's way to the editor."""

    sdk_client: Client
    capabilities: ClientCapabilities
    loop: asyncio.AbstractEventLoop
    session_id: str

    @property
    def can_read_files(self) -> bool:
        """Does it show us its unsaved buffers?"""
        return bool(self.capabilities.fs and self.capabilities.fs.read_text_file)

    @property
    def can_write_files(self) -> bool:
        """Does it write files itself, so that it can show what changed?"""
        return bool(self.capabilities.fs and self.capabilities.fs.write_text_file)

    def send_updates(self, turn: PromptTurn, *updates: Any) -> None:
        """Updates in order; from the thread of the session."""
        for update in updates:
            waiting = self._submit(self._send_update(turn, update))
            while not self._poll(waiting):
                pass

    async def _send_update(self, turn: PromptTurn, update: Any) -> None:
        if turn.is_muted or turn.response.done():
            return
        if isinstance(update, ToolCallStart):
            turn.open_tool_calls.add(update.tool_call_id)
        elif isinstance(update, ToolCallProgress) and update.status in ("completed", "failed"):
            turn.open_tool_calls.discard(update.tool_call_id)
        await self.notify(update)

    async def abandon_turn(self, turn: PromptTurn) -> None:
        """Answer for a turn that does not end by itself: nothing that was begun stays open, nothing more is heard."""
        turn.is_muted = True
        if not turn.response.done():
            await self.notify(*(tool_call_end(id, is_done=False) for id in sorted(turn.open_tool_calls)))
        turn.resolve(prompt_response("cancelled"))

    async def notify(self, *updates: Any) -> None:
        """Updates that belong to no turn; on the loop. An editor that has gone misses nothing."""
        for update in updates:
            try:
                await self.sdk_client.session_update(session_id=self.session_id, update=update)
            except ConnectionError:
                return

    def request_permission(self, turn: PromptTurn, tool_call: ToolCallStart) -> str:
        """Which of the options its user chose; CancelledError when the question went away."""
        asked = self.sdk_client.request_permission(
            session_id=self.session_id, tool_call=permission_tool_call(tool_call), options=PERMISSION_OPTIONS
        )
        try:
            outcome = self._wait_for_result(turn, asked, NO_TIMEOUT_SECONDS).outcome
        except RequestError:
            return REJECT  # an editor that cannot ask has not said yes
        if not isinstance(outcome, AllowedOutcome):
            raise CancelledError("the question was cancelled")
        return outcome.option_id

    def read_file(self, turn: PromptTurn, path: Path) -> str | None:
        """The text in its buffer; None when it shows none, and the disk has to do."""
        if not self.can_read_files:
            return None
        try:
            return self._wait_for_result(
                turn, self.sdk_client.read_text_file(session_id=self.session_id, path=str(path)), FILE_TIMEOUT_SECONDS
            ).content
        except (RequestError, SpecchatError, ValueError) as error:
            if isinstance(error, CancelledError):
                raise
            return None

    def write_file(self, turn: PromptTurn, path: Path, text: str) -> None:
        """Have it write a file; SpecchatError when it does not, and then nobody else may try."""
        asked = self.sdk_client.write_text_file(session_id=self.session_id, path=str(path), content=text)
        try:
            self._wait_for_result(turn, asked, FILE_TIMEOUT_SECONDS)
        except RequestError as error:
            raise SpecchatError(f"{path}: the editor did not write it: {error}") from None

    def _wait_for_result(self, turn: PromptTurn, client_request: Coroutine[Any, Any, Result], seconds: float) -> Result:
        waiting, until = self._submit(client_request), time.monotonic() + seconds
        while not self._poll(waiting):
            if turn.cancelled.is_set():
                waiting.cancel()
                raise CancelledError("stopped")
            if time.monotonic() > until:
                waiting.cancel()
                raise SpecchatError(f"the editor did not answer within {seconds:.0f} s")
        return waiting.result()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Have the loop do it; ConnectionError when that has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise ConnectionError("the editor has gone") from None

    def _poll(self, waiting: Future[Any]) -> bool:
        """Wait a moment for it. A loop that ended will never do it."""
        if not wait([waiting], POLL_SECONDS).done and self.loop.is_closed():
            raise ConnectionError("the editor has gone")
        return waiting.done()
