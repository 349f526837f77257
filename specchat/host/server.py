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

from specchat.host.connection import Connection
from specchat.host.engine_interface import Loader
from specchat.host.history_writer import HistoryWriter
from specchat.host.methods import Desk, Identity
from specchat.host.metrics import Family, Meters, family, page
from specchat.host.metrics_server import MetersDoor
from specchat.host.open_sessions import Library, Sessions
from specchat.host.peer_credentials import check_same_user
from specchat.host.protocol import Call, read_calls
from specchat.host.queue import Happened, TurnQueue

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """When an idle host gives back its models, and when it ends, in seconds."""

    unload: float = 15 * 60.0
    end: float = 60 * 60.0
    closing: float = 2.0


class Inbox:
    """Events on their way from the engine thread to the text thread; a byte in a socket pair wakes the reader."""

    def __init__(self) -> None:
        self._waiting: deque[Happened] = deque()
        self.receiver, self._waker = socket.socketpair()
        self.receiver.setblocking(False)
        self._waker.setblocking(False)

    def put(self, happened: Happened) -> None:
        """Leave an event, from any thread."""
        self._waiting.append(happened)
        self.wake()

    def wake(self) -> None:
        """Let the reader look around."""
        try:
            self._waker.send(b"!")
        except BlockingIOError:
            pass  # it has not yet noticed the bytes before

    def take(self) -> list[Happened]:
        """Everything that waits."""
        try:
            self.receiver.recv(4096)
        except BlockingIOError:
            pass
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


class Server:
    """Serves connections until it is told to end, or nobody needs it."""

    def __init__(
        self, identity: Identity, library: Library, loader: Loader, history: HistoryWriter, patience: Patience,
        remembered: Path | None = None,
    ) -> None:  # fmt: skip
        self.patience = patience
        self.meters = Meters()
        self.inbox = Inbox()
        self.queue = TurnQueue(loader, self.inbox.put)
        self.sessions = Sessions(library, history, self.queue)
        self.desk = Desk(identity, self.sessions, MetersDoor(self.metrics, remembered))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.inbox.receiver, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self._is_stdio = False

    def listen(self, listener: socket.socket) -> None:
        """Take clients from this socket."""
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def attach(self, peer: socket.socket) -> None:
        """Serve this client, and end with it when there is no door for others."""
        client = Connection(peer)
        self.desk.clients.add(client)
        self._selector.register(peer, selectors.EVENT_READ, client)

    def metrics(self) -> str:
        """The page of meters as it is now; from any thread."""
        return page([*self.meters.families(), *self._levels()])

    def _levels(self) -> list[Family]:
        """What is so now, where `meters` has what happened so far."""
        queue, sessions = self.queue, list(self.sessions.open.values())
        live, waiting = sum(len(session.live) for session in sessions), queue.waiting
        return [
            family("vllm:num_requests_running", "gauge", "Answers that are being written.", max(0, live - waiting)),
            family("vllm:num_requests_waiting", "gauge", "Questions that wait for their turn.", waiting),
            family("specchat:sessions", "gauge", "Conversations in memory.", len(sessions)),
            family("specchat:clients", "gauge", "Front ends that are connected.", len(self.desk.clients)),
            family("specchat:memory_bytes", "gauge", "Memory, by what it holds.", queue.memory(), "holds"),
            family("specchat:ready", "gauge", "Whether models are loaded.", int(queue.state == "ready")),
            family("specchat:host", "info", "Which host this is.", {self.desk.identity.version: 1}, "version"),
        ]

    def run(self) -> None:
        """Serve. Returns when all is stored and every client has what it was owed, or did not want it."""
        engine = Thread(target=self.queue.run, name="engine", daemon=True)
        engine.start()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end_on_signal)
        while not self._is_over():
            self._turn()
        self._finish()
        self.queue.stop()
        engine.join(self.patience.closing)
        self.sessions.history.close()

    def _turn(self) -> None:
        """One round: hear, tell, send."""
        now = time.monotonic()
        due = self.sessions.due(now)
        timeout = min(max(0.0, due - now), LONGEST_WAIT) if due is not None else LONGEST_WAIT
        for key, mask in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, Connection) and mask & selectors.EVENT_READ:
                self._hear(key.data)
        now = time.monotonic()
        for happened in self.inbox.take():
            self.meters.hear(happened.event)
            self.sessions.tell(happened, now)
        self.sessions.tick(now)
        for client in list(self.desk.clients):
            self._serve(client)
        if (
            not self.sessions.is_busy
            and self.queue.state == "ready"
            and now - self.sessions.used > self.patience.unload
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

    def _hear(self, client: Connection) -> None:
        received = client.receive()
        if received is None:
            self._drop(client, was_slow=False)
            return
        for call in read_calls(client.reader.feed(received)):
            if isinstance(call, Call):
                self.desk.answer(client, call)
            else:
                client.say(call)

    def _serve(self, client: Connection) -> None:
        if not client.send():
            self._drop(client, was_slow=False)
        elif client.is_too_slow:
            log.info("%s is too slow and is cut off", client.name)
            self._drop(client, was_slow=True)
        else:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.owes else 0)
            self._selector.modify(client.peer, wanted, client)

    def _drop(self, client: Connection, *, was_slow: bool) -> None:
        self._selector.unregister(client.peer)
        client.close()
        self.desk.clients.discard(client)
        self.sessions.abandon(client, was_slow=was_slow)

    def _is_over(self) -> bool:
        is_alone = not self.desk.clients and not self.sessions.is_busy
        if self._listener is None and is_alone:
            return True
        is_idle = is_alone and time.monotonic() - self.sessions.used > self.patience.end
        return self.desk.is_closing or is_idle

    def _end_on_signal(self, number: int, _frame: FrameType | None) -> None:
        log.info("ends on signal %d", number)
        self.desk.is_closing = True
        self.inbox.wake()

    def _finish(self) -> None:
        """Let no new client in, end the turns, and tell everyone, for a moment."""
        self.desk.is_closing = True
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
        self.sessions.cancel_all()
        until = time.monotonic() + self.patience.closing
        while time.monotonic() < until and (self.sessions.is_busy or any(client.owes for client in self.desk.clients)):
            self._turn()
        for client in list(self.desk.clients):
            client.close()


LONGEST_WAIT = 1.0


def serve(server: Server, path: Path, ready: Callable[[], None]) -> None:
    """Serve on a unix socket, whose folder and lock the caller owns."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(BACKLOG)
    server.listen(listener)
    ready()
    try:
        server.run()
    finally:
        path.unlink(missing_ok=True)


BACKLOG = 64


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
    tell.join(server.patience.closing)


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
