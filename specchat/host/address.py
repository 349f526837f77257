"""Where the host listens, and how both sides know that the other one belongs to this user.

A Unix socket, where the system has it: its folder and its mode keep others out, and the kernel names the user of the
peer. Else TCP on the loopback address, to which every program of the machine can connect. Then a file in the runtime
folder, with mode 600, holds the port and two random tokens that are made anew at each start. The client sends the first
one, and the host answers with the second; neither sends anything else before. So a program that does not read the file
can neither ask the host nor take its place. SPECCHAT_TRANSPORT=loopback chooses TCP anywhere. Knows bytes, and nothing
of the protocol that follows.
"""

import hmac
import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from specchat.errors import HostError
from specchat.file_lock import try_lock
from specchat.paths import write_atomically

TRANSPORT_VARIABLE, LOOPBACK = "SPECCHAT_TRANSPORT", "loopback"
LOOPBACK_ADDRESS = "127.0.0.1"
SOCKET_NAME, PORT_NAME, LOCK_NAME = "host.sock", "host.port", "host.lock"
MAX_SOCKET_PATH_BYTES = 100  # the smallest limit of the supported platforms is 104
LISTEN_BACKLOG = 512
TOKEN_BYTES = 32
TOKEN_LINE_BYTES = 2 * TOKEN_BYTES + 1  # hexadecimal digits and a line end
TOKEN_TIMEOUT_SECONDS = 5.0  # a client sends its token when it connects
MAX_UNKNOWN_CLIENTS = 64  # connections without a token; the oldest one is closed for a new one


@dataclass(frozen=True)
class Tokens:
    """What client and host show each other."""

    client: bytes
    host: bytes


@dataclass(frozen=True)
class Listener:
    sock: socket.socket
    file: Path  # to remove at the end
    tokens: Tokens | None = None  # None: the kernel names the user of a peer


@dataclass(eq=False)
class UnknownClient:
    """A connection over TCP that has not sent its token yet."""

    sock: socket.socket
    tokens: Tokens
    connected_at: float = field(default_factory=time.monotonic)
    _received: bytes = b""

    def is_late(self, now: float) -> bool:
        return now - self.connected_at > TOKEN_TIMEOUT_SECONDS

    def read_token(self) -> bool:
        """Whether the whole token has arrived, and is answered. OSError for a wrong one (PermissionError) or none."""
        missing = TOKEN_LINE_BYTES - len(self._received)
        try:
            received = self.sock.recv(missing + 1)  # a byte behind the token is one too many
        except BlockingIOError:
            return False
        if not received:
            raise ConnectionResetError("disconnected without a token")
        self._received += received
        if len(self._received) < TOKEN_LINE_BYTES:
            return False
        if not hmac.compare_digest(self._received, self.tokens.client):
            raise PermissionError("a wrong token")
        self.sock.send(self.tokens.host)
        return True


def uses_unix_socket() -> bool:
    return hasattr(socket, "AF_UNIX") and os.environ.get(TRANSPORT_VARIABLE) != LOOPBACK


def fits_socket_path(folder: Path) -> bool:
    """Whether a socket in this folder has a path that systems accept; TCP needs none."""
    return not uses_unix_socket() or len(os.fsencode(folder / SOCKET_NAME)) <= MAX_SOCKET_PATH_BYTES


def address_file(folder: Path) -> Path:
    return folder / (SOCKET_NAME if uses_unix_socket() else PORT_NAME)


def listen(folder: Path) -> Listener:
    """Listen for clients. The caller owns the folder and holds the host lock."""
    _other_file(folder).unlink(missing_ok=True)  # of a host that was killed
    return (_listen_unix if uses_unix_socket() else _listen_loopback)(address_file(folder))


def connect(folder: Path, timeout_seconds: float) -> socket.socket | None:
    """A connection to the host; None when none runs. OSError, TimeoutError included, when it cannot be reached."""
    peer = (_connect_unix if uses_unix_socket() else _connect_loopback)(folder, timeout_seconds)
    if peer is None and _other_file(folder).exists() and _is_locked(folder / LOCK_NAME):
        raise HostError(
            f"the engine process does not listen where {TRANSPORT_VARIABLE} says; give it to all front ends alike, or "
            "run 'specchat host stop'"
        )
    return peer


def _other_file(folder: Path) -> Path:
    return folder / (PORT_NAME if uses_unix_socket() else SOCKET_NAME)


def _listen_unix(path: Path) -> Listener:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(LISTEN_BACKLOG)
    return Listener(listener, path)


def _listen_loopback(path: Path) -> Listener:
    listener = socket.socket(socket.AF_INET)
    if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # on Windows, others could share the port
        listener.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE"), 1)  # noqa: B009
    listener.bind((LOOPBACK_ADDRESS, 0))
    listener.listen(LISTEN_BACKLOG)
    tokens = Tokens(*(f"{secrets.token_hex(TOKEN_BYTES)}\n".encode() for _side in range(2)))
    content = f"{listener.getsockname()[1]}\n".encode() + tokens.client + tokens.host
    write_atomically(path, content, mode=0o600)
    return Listener(listener, path, tokens)


def _connect_unix(folder: Path, timeout_seconds: float) -> socket.socket | None:
    """Connect in this time. While the queue of connections is full, the system refuses at once."""
    deadline, peer = time.monotonic() + timeout_seconds, socket.socket(socket.AF_UNIX)
    peer.settimeout(timeout_seconds)
    try:
        while True:
            try:
                peer.connect(str(folder / SOCKET_NAME))
                return peer
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    except (FileNotFoundError, ConnectionRefusedError):
        peer.close()
        return None
    except BaseException:
        peer.close()
        raise


def _connect_loopback(folder: Path, timeout_seconds: float) -> socket.socket | None:
    """Connect and exchange tokens. A host that was killed leaves its file, and another program may have its port."""
    found = _read_port_file(folder / PORT_NAME)
    if found is None or not _is_locked(folder / LOCK_NAME):
        return None
    port, tokens = found
    peer = socket.socket(socket.AF_INET)
    peer.settimeout(timeout_seconds)
    try:
        peer.connect((LOOPBACK_ADDRESS, port))
        peer.sendall(tokens.client)
        answer = _receive_exactly(peer, TOKEN_LINE_BYTES)
        if not answer:
            raise ConnectionResetError
        if not hmac.compare_digest(answer, tokens.host):
            raise PermissionError(f"the program at port {port} is not the engine process of this user")
        return peer
    except ConnectionError:  # the host ends
        peer.close()
        return None
    except BaseException:
        peer.close()
        raise


def _read_port_file(path: Path) -> tuple[int, Tokens] | None:
    try:
        port, client, host = path.read_bytes().splitlines(keepends=True)
        return int(port), Tokens(client, host)
    except FileNotFoundError:
        return None
    except ValueError:
        raise HostError(f"{path} is damaged; 'specchat host stop' ends the engine process that it belongs to") from None


def _is_locked(path: Path) -> bool:
    with path.open("a+b", buffering=0) as file:
        return not try_lock(file)


def _receive_exactly(peer: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count and (part := peer.recv(count - len(received))):
        received += part
    return received
