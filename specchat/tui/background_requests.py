"""A second connection to the host, for requests that must not wait for an answer: conversation lists and engine state.

Results go to callbacks in the loop of a screen.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

from textual.message_pump import MessagePump

from specchat.chat.events import LoadingProgress
from specchat.errors import SpecchatError
from specchat.history.history_reader import HistoryReader, StoredTurn
from specchat.host.client import HostConnection, connect
from specchat.host.wire_values import from_json
from specchat.process_memory import resident_bytes
from specchat.tui.job_thread import JobThread
from specchat.tui.worker_messages import EngineState, MessageQueue

POLL_SECONDS = 0.4  # interval between polls of the engine state while models load

Json = dict[str, Any]
Response = Json | SpecchatError


class BackgroundRequests(JobThread):
    def __init__(self, worker_messages: MessageQueue) -> None:
        super().__init__("background-requests", self._ignore, self._disconnect)
        self._worker_messages = worker_messages
        self._connection: HostConnection | None = None
        self._next_poll: Timer | None = None

    def poll_engine_state(self) -> None:
        """Post the engine state, and poll it while models load."""
        self.submit(self._poll_once)

    def send(
        self, method: str, params: Mapping[str, Any], receiver: MessagePump, on_response: Callable[[Response], object]
    ) -> None:
        """Call the host; `on_response` gets the response or the error, as a message of the receiver."""
        self.submit(lambda: _call_later(receiver, on_response, self._call(method, params)))

    def read_last_turn(
        self, session_id: str, receiver: MessagePump, on_turn: Callable[[StoredTurn | None], object]
    ) -> None:
        self.submit(lambda: _call_later(receiver, on_turn, self._last_turn(session_id)))

    def _ignore(self, error: Exception) -> None:
        """A list that cannot be read is worth no complaint."""

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None

    def _poll_once(self) -> None:
        stats = self._call("stats", {})
        if self._next_poll:
            self._next_poll.cancel()
        if isinstance(stats, SpecchatError):
            return
        loading = from_json(LoadingProgress, stats["loading"]) if stats.get("loading") else None
        if loading:
            self._next_poll = Timer(POLL_SECONDS, self.poll_engine_state)
            self._next_poll.daemon = True
            self._next_poll.start()
        models = sum(int(size) for size in stats.get("memory_bytes", {}).values())
        process = int(self._connection.host_info.get("pid", 0)) if self._connection else 0
        memory = resident_bytes(process) or models  # for systems that do not report that of a process
        self._worker_messages.put(EngineState(loading, memory))

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
