"""One MCP server for a front end: it starts with its first use, answers within a time limit, and fails in one line.

A server that has failed is not started again by itself, because it would fail again; `restart` does it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from specchat_mcp.event_loop import EventLoopThread, result_of
from specchat_mcp.server_errors import McpServerError
from specchat_mcp.server_settings import ServerSettings

if TYPE_CHECKING:
    from mcp.client.client import Client

    from specchat_mcp.server_run import Catalog, ServerRun

GRACE_SECONDS = 3.0  # for the event loop to report that the time is over, and for a server to stop
Result = TypeVar("Result")


class State(Enum):
    NOT_STARTED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"


class McpConnection:
    """Any thread may use it, and several may at once."""

    def __init__(self, settings: ServerSettings, loop: EventLoopThread, on_notice: Callable[[str], None]) -> None:
        self.settings, self._loop, self._on_notice = settings, loop, on_notice
        self._lock = threading.Lock()
        self._run: ServerRun | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def state(self) -> State:
        run = self._run
        if self.settings.problem or (run and run.failure):
            return State.FAILED
        if run is None:
            return State.NOT_STARTED
        return State.RUNNING if run.started.done() else State.STARTING

    @property
    def problem(self) -> str:
        """Why the server does not work; "" if it does."""
        return self.settings.problem or (self._run.failure if self._run else "")

    @property
    def known_catalog(self) -> Catalog | None:
        """What the server offers; None unless it runs. Waits for nothing."""
        run = self._run
        return run.started.result() if run and self.state is State.RUNNING and not run.started.exception() else None

    def begin(self) -> None:
        """Let the server start, and do not wait for it."""
        self._begin()

    def start(self, cancelled: threading.Event) -> Catalog:
        """Start the server if it is not running, and return what it offers; McpServerError when it does not work."""
        run = self._begin()
        if run.failure:
            raise McpServerError(self.name, f"{run.failure}; '/mcp restart {self.name}' starts it again")
        try:
            return self._loop.wait_for(run.started, self.settings.start_seconds + GRACE_SECONDS, cancelled)
        except TimeoutError:
            raise McpServerError(self.name, f"did not start within {self.settings.start_seconds:g} s") from None

    def ask(self, question: Callable[[Client], Awaitable[Result]], cancelled: threading.Event) -> Result:
        """Start the server if necessary, and ask it; McpServerError after an error and after the time limit."""
        return result_of(self.asking(question, cancelled))

    def asking(
        self,
        question: Callable[[Client], Awaitable[Result]],
        cancelled: threading.Event,
        new_lines: Callable[[], Iterable[str]] = tuple,
    ) -> Generator[str, None, Result]:
        """As `ask`, and the lines that come before the answer."""
        self.start(cancelled)
        run, seconds = self._begin(), self.settings.call_seconds
        answer = self._loop.submit(run.ask(question, seconds))
        try:
            return (
                yield from self._loop.waiting_for(
                    answer, seconds + GRACE_SECONDS, cancelled, new_lines, cancels_work=True
                )
            )
        except TimeoutError:
            raise McpServerError(self.name, f"did not answer within {seconds:g} s") from None

    def stop(self, *, waits: bool = True) -> None:
        """Stop the server; it counts as not started then."""
        with self._lock:
            run, self._run = self._run, None
        if run and not run.has_ended.is_set():
            self._loop.submit(run.stop())
            if waits:
                run.has_ended.wait(GRACE_SECONDS)

    def _begin(self) -> ServerRun:
        if self.settings.problem:
            raise McpServerError(self.name, self.settings.problem)
        with self._lock:
            if self._run is None:
                from specchat_mcp.server_run import ServerRun

                self._run = ServerRun(self.settings, self._on_notice)
                self._loop.submit(self._run.serve())
            return self._run
