"""A thread with an event loop, on which everything that talks to MCP servers runs, so that front ends never hang.

The package `mcp` is asynchronous; front ends are synchronous, or have an event loop that must not wait. The thread
starts with the first work.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import monotonic
from typing import Any, TypeVar

from specchat.errors import CancelledError

POLL_SECONDS = 0.05
STOP_SECONDS = 0.5
Result = TypeVar("Result")


class EventLoopThread:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._started_loop())

    def wait_for(self, work: Future[Result], seconds: float, cancelled: threading.Event) -> Result:
        """The result of work that others may wait for, too, with the errors of `waiting_for`."""
        return result_of(self.waiting_for(work, seconds, cancelled))

    def waiting_for(
        self,
        work: Future[Result],
        seconds: float,
        cancelled: threading.Event,
        new_lines: Callable[[], Iterable[str]] = tuple,
        *,
        cancels_work: bool = False,
    ) -> Generator[str, None, Result]:
        """The lines that come meanwhile, and the result.

        TimeoutError after this time, CancelledError once `cancelled` is set, also if the loop is stuck. With
        `cancels_work` the work itself ends then.
        """
        end = monotonic() + seconds
        try:
            while not cancelled.is_set() and monotonic() < end:
                try:
                    result = work.result(POLL_SECONDS)
                except FutureTimeoutError:
                    if work.done():
                        raise
                else:
                    yield from new_lines()
                    return result
                yield from new_lines()
        finally:
            if cancels_work:
                work.cancel()  # without effect on work that is done
        if cancelled.is_set():
            raise CancelledError("stopped waiting for the server")
        raise TimeoutError

    def close(self, seconds: float) -> None:
        """Let the work end for this time, and stop the loop. It may be used again, with a new thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop and thread:
            asyncio.run_coroutine_threadsafe(_stop(seconds), loop)
            thread.join(seconds + STOP_SECONDS)

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                logger = logging.getLogger("mcp")  # would print on stderr what becomes a line of ours
                logger.addHandler(logging.NullHandler())
                logger.propagate = False
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="mcp", daemon=True)
                self._thread.start()
            return self._loop


def result_of(steps: Generator[object, None, Result]) -> Result:
    """What a generator returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def _stop(seconds: float) -> None:
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=seconds)
    asyncio.get_running_loop().stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
