"""A second line to the host, for what can be had while an answer is written: the list of conversations, and its state.

Its own daemon thread, one errand after another. Whoever sends one gets the result in a callback on that thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from specchat.errors import SpecchatError
from specchat.host.client import Line, connect
from specchat.tui.news import EngineState, Mailbox

LOOK_SECONDS = 0.4  # how often the state is looked at while models are loading

GOODBYE_SECONDS = 0.5

Json = dict[str, Any]


class Errands:
    """Calls that belong to no answer."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._line: Line | None = None
        self._errands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_watching = False
        self._thread = Thread(target=self._run, name="errands", daemon=True)

    def begin(self) -> None:
        """Be ready; connects with the first errand."""
        self._thread.start()

    def watch(self) -> None:
        """Tell the engine's state, again and again while it loads."""
        self._errands.put(self._look)

    def send(self, method: str, params: Mapping[str, Any], then: Callable[[Json | SpecchatError], object]) -> None:
        """Call the host; `then` hears the answer, or what went wrong."""
        self._errands.put(lambda: _answer(then, self._call(method, params)))

    def close(self) -> None:
        """Hang up; a thread that still waits for the host ends with the process."""
        self._errands.put(None)
        self._thread.join(GOODBYE_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                errand = self._errands.get(timeout=LOOK_SECONDS if self._is_watching else None)
            except Empty:
                errand = self._look
            if errand is None:
                break
            errand()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._line:
            self._line.close()
        self._line = None

    def _look(self) -> None:
        stats = self._call("stats", {})
        if isinstance(stats, SpecchatError):
            self._is_watching = False
            return
        self._is_watching = stats.get("state") == "loading"
        memory = sum(int(size) for size in stats.get("memory", {}).values())
        self._mailbox.put(EngineState(str(stats.get("state", "")), memory, str(stats.get("trouble", ""))))

    def _call(self, method: str, params: Mapping[str, Any]) -> Json | SpecchatError:
        for _ in range(2):
            try:
                self._line = self._line or connect("specchat, lists")
                return self._line.call(method, params) if self._line else {}
            except (ConnectionError, OSError):
                self._hang_up()
            except SpecchatError as error:
                return error
        return SpecchatError("the engine process cannot be reached")


def _answer(then: Callable[[Json | SpecchatError], object], answer: Json | SpecchatError) -> None:
    with contextlib.suppress(RuntimeError):  # the screen that wanted to know has closed
        then(answer)
