"""The host's I/O thread: sockets, JSON and SQLite. The engine computes on its own thread and never waits for I/O.

engine thread -> EventInbox -> AnswerDelivery -> ClientConnection -> clients
"""

import errno
import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import FrameType

from specchat.history.history_writer import HistoryWriter
from specchat.host.address import (
    LISTEN_BACKLOG,
    MAX_UNKNOWN_CLIENTS,
    TOKEN_TIMEOUT_SECONDS,
    Listener,
    UnknownClient,
)
from specchat.host.connection import ClientConnection
from specchat.host.engine_loader import EngineLoader
from specchat.host.methods import HostIdentity, RpcHandler
from specchat.host.metrics import AnswerCounts, resident_bytes
from specchat.host.metrics_server import MetricsServer
from specchat.host.open_sessions import OpenSessions
from specchat.host.protocol import REQUEST_FAILED, RpcError, RpcRequest, decode_requests, encode
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import TurnEvent
from specchat.host.spawn import check_same_user

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 1.0
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
ENGINE_RESTART_SECONDS = 1.0  # between two starts of the engine thread
TOO_MANY_FILES = "the engine process has too many open files for another client; close one, or raise 'ulimit -n'"


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
        timeouts: HostTimeouts, port_file: Path,
    ) -> None:  # fmt: skip
        self.timeouts = timeouts
        self.answer_counts = AnswerCounts()
        self.inbox = EventInbox()
        self._spare_descriptor = os.open(os.devnull, os.O_RDONLY)  # to refuse a client when no other is free
        self._engine_thread = Thread(target=self._run_engine, name="engine", daemon=True)
        self._engine_started_at = 0.0
        self._has_refused_clients = False  # since the last one left
        self.queue = TurnQueue(loader, self.inbox.put)
        self.sessions = OpenSessions(history, self.queue)
        self.rpc_handler = RpcHandler(identity, self.sessions, MetricsServer(self.metrics_page, port_file))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.inbox.wake_receiver, selectors.EVENT_READ)
        self._listener, self._tokens = listener.sock, listener.tokens
        self._unknown_clients: dict[UnknownClient, None] = {}  # the oldest first
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def metrics_page(self) -> bytes:
        """The current metrics page. Thread-safe."""
        from prometheus_client.core import InfoMetricFamily

        from specchat.host.metrics_page import MetricsPage, answer_metrics, engine_gauges, gauge

        live, waiting = self.sessions.delivery.turn_count, self.queue.waiting_count
        page = MetricsPage([
            *answer_metrics(self.answer_counts),
            *engine_gauges(max(0, live - waiting), waiting, self.queue.models.state, self.sessions.memory_bytes()),
            gauge("specchat:sessions", "Sessions in memory.", len(self.sessions.by_id)),
            gauge("specchat:clients", "Connected clients.", len(self.rpc_handler.clients)),
            gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes()),
            InfoMetricFamily("specchat:host", "The version.", {"version": self.rpc_handler.identity.version}),
        ])  # fmt: skip
        return page.render()

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
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, ClientConnection) and mask & selectors.EVENT_READ:
                self._receive(key.data)
            elif isinstance(key.data, UnknownClient):
                self._read_token(key.data)
        self._close_late_clients()
        now = time.monotonic()
        for turn_event in self.inbox.take_all():
            self._count(turn_event)
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

    def _count(self, turn_event: TurnEvent) -> None:
        try:
            self.answer_counts.on_event(turn_event.event)
        except Exception:  # the edge: a number that cannot be counted must not end the host
            log.exception("metrics")

    def _accept(self) -> None:
        """Accept all clients that wait: many may start at once, and a round may take a while."""
        for _number in range(LISTEN_BACKLOG):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # already disconnected, or no free descriptors
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._refuse_client()
                else:
                    log.warning("accept: %s", error)
                return
            self._add_client(sock)

    def _add_client(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if self._tokens is not None:
            self._wait_for_token(UnknownClient(sock, self._tokens))
            return
        try:
            check_same_user(sock)
        except PermissionError as error:
            log.warning("refused a client: %s", error)
            sock.close()
            return
        self._serve_client(sock)

    def _wait_for_token(self, unknown: UnknownClient) -> None:
        if len(self._unknown_clients) >= MAX_UNKNOWN_CLIENTS:
            self._forget(next(iter(self._unknown_clients))).close()
        self._unknown_clients[unknown] = None
        self._selector.register(unknown.sock, selectors.EVENT_READ, unknown)

    def _read_token(self, unknown: UnknownClient) -> None:
        if unknown not in self._unknown_clients:
            return  # closed for a newer one in this round
        try:
            is_known = unknown.read_token()
        except OSError as error:
            log.warning("refused a client: %s", error)
            self._forget(unknown).close()
            return
        if is_known:
            self._serve_client(self._forget(unknown))

    def _close_late_clients(self) -> None:
        now = time.monotonic()
        for unknown in [each for each in self._unknown_clients if each.is_late(now)]:
            log.warning("refused a client: no token within %.0f s", TOKEN_TIMEOUT_SECONDS)
            self._forget(unknown).close()

    def _forget(self, unknown: UnknownClient) -> socket.socket:
        del self._unknown_clients[unknown]
        self._selector.unregister(unknown.sock)
        return unknown.sock

    def _serve_client(self, sock: socket.socket) -> None:
        client = ClientConnection(sock)
        self.rpc_handler.clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, client)

    def _refuse_client(self) -> None:
        """Tell a client why it is disconnected. Left waiting, it would wake this thread again and again."""
        os.close(self._spare_descriptor)
        try:
            sock, _ = self._listener.accept()
            with sock:
                sock.setblocking(False)
                sock.send(encode(RpcError(None, REQUEST_FAILED, TOO_MANY_FILES, "HostError")))
        except OSError:
            pass  # it has disconnected
        finally:
            self._spare_descriptor = os.open(os.devnull, os.O_RDONLY)
        if not self._has_refused_clients:
            self._has_refused_clients = True
            log.warning("refused a client: %s", os.strerror(errno.EMFILE))

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
        self._has_refused_clients = False
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
        self._selector.unregister(self._listener)
        self._listener.close()
        self.sessions.delivery.cancel_all()
        deadline = time.monotonic() + self.timeouts.drain_seconds
        while time.monotonic() < deadline and (
            self.sessions.delivery.live or any(client.unsent_bytes for client in self.rpc_handler.clients)
        ):
            self._run_once()
        for unknown in list(self._unknown_clients):
            self._forget(unknown).close()
        for client in list(self.rpc_handler.clients):
            client.close()
