"""The host's side of one client connection: its send buffer, which a client that reads slowly may fill to a limit."""

import socket

from specchat.host.protocol import LineReader, RpcMessage, encode

MAX_UNSENT_BYTES = 8 * 2**20  # of tens of thousands of tokens
READ_BYTES = 2**18


class ClientConnection:
    """A non-blocking socket to one client."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.line_reader = LineReader()
        self.client_name = "unknown"
        self._send_buffer = bytearray()
        sock.setblocking(False)

    def queue_message(self, message: RpcMessage) -> None:
        self._send_buffer += encode(message)

    @property
    def unsent_bytes(self) -> int:
        return len(self._send_buffer)

    @property
    def is_too_slow(self) -> bool:
        return self.unsent_bytes > MAX_UNSENT_BYTES

    def receive(self) -> bytes | None:
        """The bytes received; b"" when there are none yet, None when the client has disconnected."""
        try:
            return self.sock.recv(READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def send(self) -> bool:
        """Send as much as the socket accepts now; False when the client has disconnected."""
        while self._send_buffer:
            try:
                sent = self.sock.send(memoryview(self._send_buffer)[:READ_BYTES].toreadonly())
            except BlockingIOError:
                break
            except OSError:
                return False
            del self._send_buffer[:sent]
        return True

    def close(self) -> None:
        self.sock.close()
