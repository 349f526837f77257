"""A connection to the host, which is started, or replaced when it is another one and idle. Knows no session."""

import socket
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specchat import __version__
from specchat.errors import HostError, InputError, SpecchatError
from specchat.host.host_lock import no_answer_error
from specchat.host.protocol import (
    MAX_LINE_BYTES,
    JsonObject,
    LineReader,
    RpcError,
    RpcNotification,
    RpcRequest,
    RpcResponse,
    decode_host_messages,
    encode,
)
from specchat.host.spawn import configuration_hash, find_host, find_or_start_host

MIN_POLL_SECONDS = 0.001
HELLO_TIMEOUT_SECONDS = 10.0  # the host answers at once, also while it computes, unless its disk is slow
RESPONSE_TIMEOUT_SECONDS = 15.0
READ_BYTES = 2**18


class HostConnection:
    """A connection to the host. Raises ConnectionError when the host closes it."""

    def __init__(self, sock: socket.socket, client_name: str) -> None:
        self._sock = sock
        self._line_reader = LineReader()
        self._received: deque[RpcNotification | RpcResponse | RpcError] = deque()
        self._last_request_id = 0
        self.host_info = self.call("hello", {"client": client_name, "version": __version__}, HELLO_TIMEOUT_SECONDS)

    def call(self, method: str, params: Mapping[str, Any], timeout_seconds: float | None = None) -> JsonObject:
        """Send a request and wait for its response. Other messages stay queued for `next_message`."""
        request_id = self.send(method, params)
        timeout_seconds = RESPONSE_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + timeout_seconds
        others: list[RpcNotification | RpcResponse | RpcError] = []
        while True:
            message = self.next_message(deadline - time.monotonic())
            if message is None:
                raise no_answer_error(timeout_seconds)
            if isinstance(message, RpcError) and message.id is None:
                raise message.to_exception()  # about the connection: the host sends it and disconnects
            if isinstance(message, RpcNotification) or message.id != request_id:
                others.append(message)
                continue
            self._received.extendleft(reversed(others))
            if isinstance(message, RpcError):
                raise message.to_exception()
            return message.result

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request; returns its id."""
        self._last_request_id += 1
        line = encode(RpcRequest(self._last_request_id, method, dict(params)))
        if len(line) > MAX_LINE_BYTES:
            size, limit = len(line) / 2**20, MAX_LINE_BYTES // 2**20
            raise InputError(f"the request is too large: {size:.0f} MiB on the wire, at most {limit}; attach less")
        self._sock.settimeout(RESPONSE_TIMEOUT_SECONDS)
        try:
            self._sock.sendall(line)
        except TimeoutError:
            raise no_answer_error(RESPONSE_TIMEOUT_SECONDS) from None
        except BrokenPipeError as error:  # of the socket; one of stdout means something else
            self._raise_farewell()
            raise ConnectionResetError("the host closed the connection") from error
        return self._last_request_id

    def _raise_farewell(self) -> None:
        """Raise the reason that the host gave before it closed the connection, if any."""
        with suppress(ConnectionError):
            while (message := self.next_message(0.0)) is not None:
                if isinstance(message, RpcError) and message.id is None:
                    raise message.to_exception()

    def next_message(self, timeout_seconds: float) -> RpcNotification | RpcResponse | RpcError | None:
        deadline = time.monotonic() + timeout_seconds
        while not self._received:
            self._sock.settimeout(max(MIN_POLL_SECONDS, deadline - time.monotonic()))
            try:
                received = self._sock.recv(READ_BYTES)
            except TimeoutError:
                return None
            if not received:
                raise ConnectionResetError("the host closed the connection")
            self._received.extend(decode_host_messages(self._line_reader.feed(received)))
        return self._received.popleft()

    def close(self) -> None:
        self._sock.close()


def connect(client_name: str, *, starts_host: bool = True) -> HostConnection | None:
    """Connect to the host, and start one when none runs. Replaces an idle host that is not compatible."""
    for _ in range(3):
        sock = find_or_start_host() if starts_host else find_host()
        if sock is None:
            return None
        try:
            connection = HostConnection(sock, client_name)
            if not starts_host or _is_compatible(connection.host_info):
                return connection
            connection.call("shutdown", {})
            _wait_for_exit(connection)
        except ConnectionError:
            sock.close()
            continue  # the host was exiting
        except SpecchatError:
            sock.close()
            raise
    raise HostError("the engine process exits right after its start; 'specchat host status' may show the reason")


def _is_compatible(host_info: JsonObject) -> bool:
    """Whether version and configuration are equal. HostError for another host that is busy or newer."""
    version = str(host_info.get("version"))
    if version == __version__ and host_info.get("configuration_hash") == configuration_hash():
        return True
    if host_info.get("is_busy"):
        difference = f"is version {version}" if version != __version__ else "has another configuration"
        raise HostError(f"the running engine process {difference} and is busy; wait, or run 'specchat host stop'")
    if _version_numbers(version) > _version_numbers(__version__):
        message = f"the running engine process is newer ({version}) than this specchat"
        raise HostError(f"{message}; upgrade, or run 'specchat host stop'")
    return False


def _version_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _wait_for_exit(connection: HostConnection) -> None:
    try:
        deadline = time.monotonic() + RESPONSE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            connection.next_message(1.0)
    except ConnectionError:
        connection.close()
        return
    raise HostError("the old engine process does not exit; run 'specchat host stop'")
