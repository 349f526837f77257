"""The host's text thread: sockets, JSON and SQLite. The engine computes on a thread of its own and never waits.

engine thread --(Happened)--> inbox --> sessions --> feeds --> connections --> clients
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import FrameType

from specchat.host.connection import ClientConnection
from specchat.host.engine_interface import EngineLoader
from specchat.host.history_writer import HistoryWriter
from specchat.host.methods import HostIdentity, RpcHandler
from specchat.host.metrics import HostMetrics, MetricFamily, metric_family, openmetrics_text
from specchat.host.metrics_server import MetricsServer
from specchat.host.open_sessions import OpenSessions, SessionCallbacks
from specchat.host.peer_credentials import check_same_user
from specchat.host.protocol import RpcRequest, decode_requests
from specchat.host.queue import TurnEvent, TurnQueue

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostTimeouts:
    """When an idle host gives back its models, and when it ends, in seconds."""

    idle_unload_seconds: float = 15 * 60.0
    idle_exit_seconds: float = 60 * 60.0
    drain_seconds: float = 2.0


class EventInbox:
    """Events on their way from the engine thread to the text thread; a byte in a socket pair wakes the reader."""

    def __init__(self) -> None:
        self._events: deque[TurnEvent] = deque()
        self.wake_receiver, self._wake_sender = socket.socketpair()
        self.wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def put(self, turn_event: TurnEvent) -> None:
        """Leave an event, from any thread."""
        self._events.append(turn_event)
        self.wake()

    def wake(self) -> None:
        """Let the reader look around."""
        try:
            self._wake_sender.send(b"!")
        except BlockingIOError:
            pass  # it has not yet noticed the bytes before

    def take_all(self) -> list[TurnEvent]:
        """Everything that waits."""
        try:
            self.wake_receiver.recv(4096)
        except BlockingIOError:
            pass
        return [self._events.popleft() for _ in range(len(self._events))]


class Server:
    """Serves connections until it is told to end, or nobody needs it."""

    def __init__(
        self, identity: HostIdentity, session_callbacks: SessionCallbacks, engine_loader: EngineLoader, history: HistoryWriter, timeouts: HostTimeouts,
        port_file: Path | None = None,
    ) -> None:  # fmt: skip
        self.timeouts = timeouts
        self.host_metrics = HostMetrics()
        self.inbox = EventInbox()
        self.queue = TurnQueue(engine_loader, self.inbox.put)
        self.sessions = OpenSessions(session_callbacks, history, self.queue)
        self.rpc_handler = RpcHandler(identity, self.sessions, MetricsServer(self.metrics_page, port_file))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.inbox.wake_receiver, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self._is_stdio = False

    def listen(self, listener: socket.socket) -> None:
        """Take clients from this socket."""
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def attach(self, sock: socket.socket) -> None:
        """Serve this client, and end with it when there is no door for others."""
        client = ClientConnection(sock)
        self.rpc_handler.clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, client)

    def metrics_page(self) -> str:
        """The page of meters as it is now; from any thread."""
        return openmetrics_text([*self.host_metrics.families(), *self._gauges()])

    def _gauges(self) -> list[MetricFamily]:
        """What is so now, where `meters` has what happened so far."""
        queue, sessions = self.queue, list(self.sessions.by_id.values())
        live, waiting = sum(len(session.live_turns) for session in sessions), queue.waiting_count
        return [
            metric_family(
                "vllm:num_requests_running", "gauge", "Answers that are being written.", max(0, live - waiting)
            ),
            metric_family("vllm:num_requests_waiting", "gauge", "Questions that wait for their turn.", waiting),
            metric_family("specchat:sessions", "gauge", "Conversations in memory.", len(sessions)),
            metric_family("specchat:clients", "gauge", "Front ends that are connected.", len(self.rpc_handler.clients)),
            metric_family("specchat:memory_bytes", "gauge", "Memory, by what it holds.", queue.memory_bytes(), "holds"),
            metric_family("specchat:ready", "gauge", "Whether models are loaded.", int(queue.state == "ready")),
            metric_family(
                "specchat:host", "info", "Which host this is.", {self.rpc_handler.identity.version: 1}, "version"
            ),
        ]

    def run(self) -> None:
        """Serve. Returns when all is stored and every client has what it was owed, or did not want it."""
        engine = Thread(target=self.queue.run, name="engine", daemon=True)
        engine.start()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._exit_on_signal)
        while not self._should_exit():
            self._run_once()
        self._drain()
        self.queue.stop()
        engine.join(self.timeouts.drain_seconds)
        self.sessions.history.close()

    def _run_once(self) -> None:
        """One round: hear, tell, send."""
        now = time.monotonic()
        due = self.sessions.next_due_at(now)
        timeout = min(max(0.0, due - now), MAX_WAIT_SECONDS) if due is not None else MAX_WAIT_SECONDS
        for key, mask in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, ClientConnection) and mask & selectors.EVENT_READ:
                self._receive(key.data)
        now = time.monotonic()
        for happened in self.inbox.take_all():
            self.host_metrics.on_event(happened.event)
            self.sessions.on_event(happened, now)
        self.sessions.tick(now)
        for client in list(self.rpc_handler.clients):
            self._send(client)
        if (
            not self.sessions.is_busy
            and self.queue.state == "ready"
            and now - self.sessions.last_used_at > self.timeouts.idle_unload_seconds
        ):
            self.queue.unload()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            peer, _ = self._listener.accept()
        except OSError as error:  # gone again, or out of descriptors
            log.warning("accept: %s", error)
            return
        try:
            check_same_user(peer)
        except PermissionError as error:
            log.warning("refused a client: %s", error)
            peer.close()
            return
        self.attach(peer)

    def _receive(self, client: ClientConnection) -> None:
        received = client.receive()
        if received is None:
            self._disconnect(client, was_slow=False)
            return
        for call in decode_requests(client.line_reader.feed(received)):
            if isinstance(call, RpcRequest):
                self.rpc_handler.dispatch(client, call)
            else:
                client.queue_message(call)

    def _send(self, client: ClientConnection) -> None:
        if not client.send():
            self._disconnect(client, was_slow=False)
        elif client.is_too_slow:
            log.info("%s is too slow and is cut off", client.client_name)
            self._disconnect(client, was_slow=True)
        else:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.has_pending_output else 0)
            self._selector.modify(client.sock, wanted, client)

    def _disconnect(self, client: ClientConnection, *, was_slow: bool) -> None:
        self._selector.unregister(client.sock)
        client.close()
        self.rpc_handler.clients.discard(client)
        self.sessions.on_disconnect(client, was_slow=was_slow)

    def _should_exit(self) -> bool:
        is_alone = not self.rpc_handler.clients and not self.sessions.is_busy
        if self._listener is None and is_alone:
            return True
        is_idle = is_alone and time.monotonic() - self.sessions.last_used_at > self.timeouts.idle_exit_seconds
        return self.rpc_handler.is_closing or is_idle

    def _exit_on_signal(self, number: int, _frame: FrameType | None) -> None:
        log.info("ends on signal %d", number)
        self.rpc_handler.is_closing = True
        self.inbox.wake()

    def _drain(self) -> None:
        """Let no new client in, end the turns, and tell everyone, for a moment."""
        self.rpc_handler.is_closing = True
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
        self.sessions.cancel_all()
        until = time.monotonic() + self.timeouts.drain_seconds
        while time.monotonic() < until and (
            self.sessions.is_busy or any(client.has_pending_output for client in self.rpc_handler.clients)
        ):
            self._run_once()
        for client in list(self.rpc_handler.clients):
            client.close()


MAX_WAIT_SECONDS = 1.0


def serve(server: Server, path: Path, on_ready: Callable[[], None]) -> None:
    """Serve on a unix socket, whose folder and lock the caller owns."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(LISTEN_BACKLOG)
    server.listen(listener)
    on_ready()
    try:
        server.run()
    finally:
        path.unlink(missing_ok=True)


LISTEN_BACKLOG = 64


def serve_stdio(server: Server, stdin: int, stdout: int) -> None:
    """Serve one client on two descriptors, whatever they are: files, pipes or terminals."""
    ours, theirs = socket.socketpair()
    server.attach(ours)
    hear = Thread(target=_pump, args=(lambda: os.read(stdin, PUMP_BYTES), theirs.sendall), daemon=True)
    tell = Thread(
        target=_pump, args=(lambda: theirs.recv(PUMP_BYTES), lambda data: _write_all(stdout, data)), daemon=True
    )
    hear.start()
    tell.start()
    Thread(target=lambda: (hear.join(), theirs.shutdown(socket.SHUT_WR)), daemon=True).start()
    server.run()
    tell.join(server.timeouts.drain_seconds)


PUMP_BYTES = 2**16


def _pump(read: Callable[[], bytes], write: Callable[[bytes], None]) -> None:
    try:
        while data := read():
            write(data)
    except OSError:
        pass  # the other side is gone, which is an end like any other


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
