"""The way to the engine: one connection, on a thread of its own, opened behind whatever the editor does meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag
from typing import TypeVar

from specchat.chat.fim_request import FimRequest
from specchat.errors import SpecchatError
from specchat.host.client import CompletionResult, Conversation, SessionRequest

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0  # after an engine that could not be reached
LOADING, READY, UNREACHABLE = "loading", "ready", "away"

Result = TypeVar("Result")


class EngineConnection:
    """Where gaps are filled. Nothing here raises for an engine that is away: the editor's user asked for nothing."""

    def __init__(self, session_request: SessionRequest) -> None:
        self._session_request = session_request
        self._executor = ThreadPoolExecutor(1, "lsp-engine")
        self._conversation: Conversation | None = None
        self._retry_at = 0.0

    async def complete(self, gap: FimRequest, cancelled: Flag) -> CompletionResult:
        """What an engine writes into the gap; nothing when there is none."""
        return await self._call(lambda engine: engine.complete(gap, cancelled), CompletionResult("", UNREACHABLE))

    async def state(self) -> str:
        """Whether the models are there: "cold", LOADING, READY, or AWAY."""
        return await self._call(lambda engine: str(engine.call("stats")["state"]), UNREACHABLE)

    async def _call(self, call: Callable[[Conversation], Result], fallback: Result) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._call_blocking, call, fallback)

    def _call_blocking(self, call: Callable[[Conversation], Result], fallback: Result) -> Result:
        if time.monotonic() < self._retry_at:
            return fallback
        try:
            self._conversation = self._conversation or Conversation(self._session_request, "lsp")
            return call(self._conversation)
        except (SpecchatError, OSError) as error:
            log.warning("the engine is away: %s", error)
            self._conversation, self._retry_at = None, time.monotonic() + RETRY_SECONDS
            return fallback
