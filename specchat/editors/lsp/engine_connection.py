"""The connection to the engine process, on a thread of its own, opened in the background."""

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

RETRY_SECONDS = 30.0  # after an unreachable engine
READY, UNREACHABLE = "ready", "unreachable"

Result = TypeVar("Result")


class EngineConnection:
    """Completes text. An unreachable engine is not an error: completions are automatic."""

    def __init__(self, session_request: SessionRequest) -> None:
        self._session_request = session_request
        self._executor = ThreadPoolExecutor(1, "lsp-engine")
        self._conversation: Conversation | None = None
        self._retry_at = 0.0

    async def complete(self, gap: FimRequest, cancelled: Flag) -> CompletionResult:
        """The completion from the engine; empty if it is unreachable."""
        return await self._call(lambda engine: engine.complete(gap, cancelled), CompletionResult("", UNREACHABLE))

    async def state(self) -> str:
        """The state of the models: "unloaded", "loading", READY, or UNREACHABLE."""
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
            log.warning("the engine process is unreachable: %s", error)
            self._conversation, self._retry_at = None, time.monotonic() + RETRY_SECONDS
            return fallback
