"""The host's I/O thread: sockets, JSON and SQLite. The engine computes on its own thread and never waits for I/O.

engine thread -> EventInbox -> AnswerDelivery -> ClientConnection -> clients
"""

import logging
import selectors
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from threading import Thread
from types import FrameType

from specchat.history.history_writer import HistoryWriter
from specchat.host.address import Listener, UnknownClient
from specchat.host.connection import ClientConnection
from specchat.host.door import Door
from specchat.host.engine_loader import EngineLoader
from specchat.host.methods import HostIdentity, RpcHandler
from specchat.host.open_sessions import OpenSessions
from specchat.host.protocol import RpcRequest, decode_requests
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import TurnEvent

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 1.0
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
ENGINE_RESTART_SECONDS = 1.0  # between two starts of the engine thread


@dataclass(frozen=True)
class HostTimeouts:
    """When an idle host unloads its models, when it exits, and how long it takes to deliver its last events."""

    idle_unload_seconds: float = 15 * 60.0
    idle_exit_seconds: float = 60 * 60.0
    drain_seconds: float = 2.0


class EventInbox:
    """A queue of events from the engine thread to the I/O thread. A byte in a socket pair wakes the reader."""

    def __init__(self) -> None:
        self._events: deque[TurnEvent] = deque()
        self.wake_receiver, self._wake_sender = socket.socketpair()
        self.wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def put(self, turn_event: TurnEvent) -> None:
        """Add an event. Thread-safe."""
        self._events.append(turn_event)
        self.wake()

    def wake(self) -> None:
        """Wake the I/O thread. Thread-safe."""
        try:
            self._wake_sender.send(b"!")
        except BlockingIOError:
            pass  # the buffer is full of unread wake-ups

    def take_all(self) -> list[TurnEvent]:
        try:
            self.wake_receiver.recv(4096)
        except BlockingIOError:
            pass
        return [self._events.popleft() for _ in range(len(self._events))]


class Server:
    """Serves connections until a shutdown, a signal, or the idle timeout."""

    def __init__(
        self, listener: Listener, identity: HostIdentity, loader: EngineLoader, history: HistoryWriter,
        timeouts: HostTimeouts,
    ) -> None:  # fmt: skip
        self.timeouts = timeouts
        self.inbox = EventInbox()
        self._engine_thread = Thread(target=self._run_engine, name="engine", daemon=True)
        self._engine_started_at = 0.0
        self.queue = TurnQueue(loader, self.inbox.put)
        self.sessions = OpenSessions(history, self.queue)
        self.rpc_handler = RpcHandler(identity, self.sessions)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.inbox.wake_receiver, selectors.EVENT_READ)
        self._door = Door(listener, self._selector, self._serve_client)

    def run(self) -> None:
        """Serve until the exit. Sends the last events for up to drain_seconds, and writes the history."""
        self._start_engine_thread()
        for number in STOP_SIGNALS:
            signal.signal(number, self._exit_on_signal)
        while not self._should_exit():
            self._run_once()
        self._drain()
        self.queue.stop()
        self._engine_thread.join(self.timeouts.drain_seconds)
        self.sessions.history.close()

    def _start_engine_thread(self) -> None:
        self._engine_started_at = time.monotonic()
        self._engine_thread = Thread(target=self._run_engine, name="engine", daemon=True)
        self._engine_thread.start()

    def _run_engine(self) -> None:
        try:
            self.queue.run()
        except BaseException:  # the edge: a plugin may raise anything, SystemExit included
            log.exception("the engine thread ended")
        self.inbox.wake()

    def _restart_dead_engine(self, now: float) -> None:
        """End what the engine thread was doing with an error, and start another one with no model loaded."""
        if not self._engine_thread.is_alive() and now - self._engine_started_at >= ENGINE_RESTART_SECONDS:
            self.queue.reset()
            self._start_engine_thread()

    def _run_once(self) -> None:
        now = time.monotonic()
        due = self.sessions.delivery.next_due_at(now)
        timeout = min(max(0.0, due - now), MAX_WAIT_SECONDS) if due is not None else MAX_WAIT_SECONDS
        for key, mask in self._selector.select(timeout):
            if isinstance(key.data, ClientConnection) and mask & selectors.EVENT_READ:
                self._receive(key.data)
            elif isinstance(key.data, Door):
                self._door.accept()
            elif isinstance(key.data, UnknownClient):
                self._door.read_token(key.data)
        self._door.close_late_clients()
        now = time.monotonic()
        for turn_event in self.inbox.take_all():
            self.sessions.delivery.on_event(turn_event, now)
        self.sessions.delivery.tick(now)
        self._restart_dead_engine(now)
        for client in list(self.rpc_handler.clients):
            self._send(client)
        if (
            not self.sessions.delivery.live
            and self.queue.models.state == "ready"
            and now - self.sessions.delivery.last_used_at > self.timeouts.idle_unload_seconds
        ):
            self.queue.models.unload()

    def _serve_client(self, sock: socket.socket) -> None:
        client = ClientConnection(sock)
        self.rpc_handler.clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, client)

    def _receive(self, client: ClientConnection) -> None:
        try:
            self._handle_input(client)
        except Exception:  # the edge: what one client sends must not end the host
            log.exception("disconnected %s", client.client_name)
            self._disconnect(client)

    def _handle_input(self, client: ClientConnection) -> None:
        received = client.receive()
        if received is None:
            self._disconnect(client)
            return
        for message in decode_requests(client.line_reader.feed(received)):
            if isinstance(message, RpcRequest):
                self.rpc_handler.dispatch(client, message)
            else:
                client.queue_message(message)

    def _send(self, client: ClientConnection) -> None:
        if not client.send():
            self._disconnect(client)
        elif client.is_too_slow:
            log.info("disconnected %s: too slow", client.client_name)
            self._disconnect(client)
        else:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent_bytes else 0)
            self._selector.modify(client.sock, events, client)

    def _disconnect(self, client: ClientConnection) -> None:
        self._selector.unregister(client.sock)
        client.close()
        self._door.has_refused_clients = False
        self.rpc_handler.clients.discard(client)
        self.sessions.delivery.on_disconnect(client)

    def _should_exit(self) -> bool:
        is_unused = not self.rpc_handler.clients and not self.sessions.delivery.live
        is_idle = is_unused and time.monotonic() - self.sessions.delivery.last_used_at > self.timeouts.idle_exit_seconds
        return self.rpc_handler.is_closing or is_idle

    def _exit_on_signal(self, number: int, _frame: FrameType | None) -> None:
        log.info("exiting on signal %d", number)
        self.rpc_handler.is_closing = True
        self.inbox.wake()

    def _drain(self) -> None:
        """Close the listener, cancel the turns, and send the last events for up to drain_seconds."""
        self.rpc_handler.is_closing = True
        self._door.close()
        self.sessions.delivery.cancel_all()
        deadline = time.monotonic() + self.timeouts.drain_seconds
        while time.monotonic() < deadline and (
            self.sessions.delivery.live or any(client.unsent_bytes for client in self.rpc_handler.clients)
        ):
            self._run_once()
        for client in list(self.rpc_handler.clients):
            client.close()
