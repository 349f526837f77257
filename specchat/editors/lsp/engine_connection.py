"""The way to the engine: one connection, on a thread of its own, opened behind whatever the editor does meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag
from typing import TypeVar

from specchat.chat.fim_request import Gap
from specchat.errors import SpecchatError
from specchat.host.client import Conversation, Filled, Wish

log = logging.getLogger(__name__)

REST_SECONDS = 30.0  # after an engine that could not be reached
LOADING, READY, AWAY = "loading", "ready", "away"

Result = TypeVar("Result")


class Door:
    """Where gaps are filled. Nothing here raises for an engine that is away: the editor's user asked for nothing."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._thread = ThreadPoolExecutor(1, "lsp-engine")
        self._conversation: Conversation | None = None
        self._rest_until = 0.0

    async def fill(self, gap: Gap, cancelled: Flag) -> Filled:
        """What an engine writes into the gap; nothing when there is none."""
        return await self._reached(lambda engine: engine.fill(gap, cancelled), Filled("", AWAY))

    async def state(self) -> str:
        """Whether the models are there: "cold", LOADING, READY, or AWAY."""
        return await self._reached(lambda engine: str(engine.call("stats")["state"]), AWAY)

    async def _reached(self, ask: Callable[[Conversation], Result], otherwise: Result) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, ask, otherwise)

    def _ask(self, ask: Callable[[Conversation], Result], otherwise: Result) -> Result:
        if time.monotonic() < self._rest_until:
            return otherwise
        try:
            self._conversation = self._conversation or Conversation(self._wish, "lsp")
            return ask(self._conversation)
        except (SpecchatError, OSError) as error:
            log.warning("the engine is away: %s", error)
            self._conversation, self._rest_until = None, time.monotonic() + REST_SECONDS
            return otherwise
