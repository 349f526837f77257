"""A second line to the host, for what can be had while an answer is written: the list of conversations, and its state.

Its own daemon thread, one errand after another. Whoever sends one gets the result in a callback on that thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from specchat.chat.history import HistoryReader, StoredTurn
from specchat.errors import SpecchatError
from specchat.host.client import Line, connect
from specchat.tui.messages import EngineState, Mailbox

LOOK_SECONDS = 0.4  # how often the state is looked at while models are loading

GOODBYE_SECONDS = 0.5

Json = dict[str, Any]
Said = TypeVar("Said")


class Errands:
    """Calls that belong to no answer."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._line: Line | None = None
        self._errands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_watching = False
        self._newest_look = ""
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

    def read_last_turn(self, session: str, then: Callable[[StoredTurn | None], object]) -> None:
        """Read what was said last in a conversation, unless another one is asked for before its turn comes."""
        self._newest_look = session
        self._errands.put(lambda: _answer(then, self._last_turn(session)) if session == self._newest_look else None)

    def close(self) -> None:
        """Hang up; a thread that still waits for the host ends with the process."""
        self._errands.put(None)
        if self._thread.is_alive():  # nobody began who leaves before the first frame
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
        process = int(self._line.hello.get("pid", 0)) if self._line else 0
        self._mailbox.put(EngineState(str(stats.get("state", "")), memory, str(stats.get("trouble", "")), process))

    def _last_turn(self, session: str) -> StoredTurn | None:
        """None also when the history cannot be read: a glance is worth no complaint."""
        with contextlib.suppress(SpecchatError):
            history = HistoryReader(Path(self._line.hello["history"])) if self._line else None
            if history:
                with contextlib.closing(history):
                    thread = history.thread(session)
                    return next(reversed(history.turns(thread.tip)), None) if thread else None
        return None

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


def _answer(then: Callable[[Said], object], answer: Said) -> None:
    with contextlib.suppress(RuntimeError):  # the screen that wanted to know has closed
        then(answer)
