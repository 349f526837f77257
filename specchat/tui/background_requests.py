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
from specchat.host.client import HostConnection, connect
from specchat.tui.worker_messages import EngineState, MessageQueue

POLL_SECONDS = 0.4  # how often the state is looked at while models are loading

CLOSE_TIMEOUT_SECONDS = 0.5

Json = dict[str, Any]
Response = TypeVar("Response")


class BackgroundRequests:
    """Calls that belong to no answer."""

    def __init__(self, worker_messages: MessageQueue) -> None:
        self._worker_messages = worker_messages
        self._connection: HostConnection | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_polling = False
        self._latest_session = ""
        self._thread = Thread(target=self._run, name="errands", daemon=True)

    def start(self) -> None:
        """Be ready; connects with the first errand."""
        self._thread.start()

    def poll_engine_state(self) -> None:
        """Tell the engine's state, again and again while it loads."""
        self._jobs.put(self._poll_once)

    def send(
        self, method: str, params: Mapping[str, Any], on_response: Callable[[Json | SpecchatError], object]
    ) -> None:
        """Call the host; `then` hears the answer, or what went wrong."""
        self._jobs.put(lambda: _call_back(on_response, self._call(method, params)))

    def read_last_turn(self, session_id: str, on_turn: Callable[[StoredTurn | None], object]) -> None:
        """Read what was said last in a conversation, unless another one is asked for before its turn comes."""
        self._latest_session = session_id
        self._jobs.put(
            lambda: _call_back(on_turn, self._last_turn(session_id)) if session_id == self._latest_session else None
        )

    def close(self) -> None:
        """Hang up; a thread that still waits for the host ends with the process."""
        self._jobs.put(None)
        if self._thread.is_alive():  # nobody began who leaves before the first frame
            self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                errand = self._jobs.get(timeout=POLL_SECONDS if self._is_polling else None)
            except Empty:
                errand = self._poll_once
            if errand is None:
                break
            errand()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None

    def _poll_once(self) -> None:
        stats = self._call("stats", {})
        if isinstance(stats, SpecchatError):
            self._is_polling = False
            return
        self._is_polling = stats.get("state") == "loading"
        memory = sum(int(size) for size in stats.get("memory", {}).values())
        process = int(self._connection.host_info.get("pid", 0)) if self._connection else 0
        self._worker_messages.put(
            EngineState(str(stats.get("state", "")), memory, str(stats.get("trouble", "")), process)
        )

    def _last_turn(self, session: str) -> StoredTurn | None:
        """None also when the history cannot be read: a glance is worth no complaint."""
        with contextlib.suppress(SpecchatError):
            history = HistoryReader(Path(self._connection.host_info["history"])) if self._connection else None
            if history:
                with contextlib.closing(history):
                    thread = history.thread(session)
                    return next(reversed(history.turns(thread.tip)), None) if thread else None
        return None

    def _call(self, method: str, params: Mapping[str, Any]) -> Json | SpecchatError:
        for _ in range(2):
            try:
                self._connection = self._connection or connect("specchat, lists")
                return self._connection.call(method, params) if self._connection else {}
            except (ConnectionError, OSError):
                self._disconnect()
            except SpecchatError as error:
                return error
        return SpecchatError("the engine process cannot be reached")


def _call_back(then: Callable[[Response], object], answer: Response) -> None:
    with contextlib.suppress(RuntimeError):  # the screen that wanted to know has closed
        then(answer)
