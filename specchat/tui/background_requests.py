"""A second connection to the host, for requests that must not wait for an answer: conversation lists and engine state.

It has a daemon thread of its own and runs one job after another. Results go to callbacks in the loop of a screen.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from textual.message_pump import MessagePump

from specchat.errors import SpecchatError
from specchat.history.history_reader import HistoryReader, StoredTurn
from specchat.host.client import HostConnection, connect
from specchat.tui.worker_messages import EngineState, MessageQueue

POLL_SECONDS = 0.4  # interval between polls of the engine state while models load
CLOSE_TIMEOUT_SECONDS = 0.5

Json = dict[str, Any]
Response = Json | SpecchatError


class BackgroundRequests:
    def __init__(self, worker_messages: MessageQueue) -> None:
        self._worker_messages = worker_messages
        self._connection: HostConnection | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_polling = False
        self._latest_session = ""
        self._thread = Thread(target=self._run, name="background-requests", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poll_engine_state(self) -> None:
        """Post the engine state, and poll it while models load."""
        self._jobs.put(self._poll_once)

    def send(
        self, method: str, params: Mapping[str, Any], receiver: MessagePump, on_response: Callable[[Response], object]
    ) -> None:
        """Call the host; `on_response` gets the response or the error, as a message of the receiver."""
        self._jobs.put(lambda: _call_later(receiver, on_response, self._call(method, params)))

    def read_last_turn(
        self, session_id: str, receiver: MessagePump, on_turn: Callable[[StoredTurn | None], object]
    ) -> None:
        """Read the last turn of a session; a later call for another session supersedes this one."""

        def read() -> None:
            if session_id == self._latest_session:
                _call_later(receiver, on_turn, self._last_turn(session_id))

        self._latest_session = session_id
        self._jobs.put(read)

    def close(self) -> None:
        """Disconnect; a thread that still waits for the host ends with the process."""
        self._jobs.put(None)
        if self._thread.is_alive():  # not started if the app closes before the first frame
            self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=POLL_SECONDS if self._is_polling else None)
            except Empty:
                job = self._poll_once
            if job is None:
                break
            job()
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
        memory = sum(int(size) for size in stats.get("memory_bytes", {}).values())
        process = int(self._connection.host_info.get("pid", 0)) if self._connection else 0
        self._worker_messages.put(
            EngineState(str(stats.get("state", "")), memory, str(stats.get("warning", "")), process)
        )

    def _last_turn(self, session: str) -> StoredTurn | None:
        """None also when the history cannot be read: a glance is worth no complaint."""
        with contextlib.suppress(SpecchatError):
            history = HistoryReader(Path(self._connection.host_info["history_path"])) if self._connection else None
            if history:
                with contextlib.closing(history):
                    thread = history.thread(session)
                    return next(reversed(history.turns(thread.tip)), None) if thread else None
        return None

    def _call(self, method: str, params: Mapping[str, Any]) -> Response:
        for _ in range(2):
            try:
                self._connection = self._connection or connect("specchat, lists")
                return self._connection.call(method, params) if self._connection else {}
            except (ConnectionError, OSError):
                self._disconnect()
            except SpecchatError as error:
                return error
        return SpecchatError("the engine process cannot be reached")


def _call_later(receiver: MessagePump, function: Callable[[Any], object], argument: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the screen has closed
        receiver.call_later(function, argument)
