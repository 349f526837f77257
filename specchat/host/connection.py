"""One client of the host: what it may still send us, and what we still owe it.

Lines are fetched from the feeds only while the client reads, so a slow one costs the host 64 KiB and not its whole lag.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from specchat.host.event_feed import EventFeed
from specchat.host.protocol import LineReader, RpcMessage, encode

SEND_BUFFER_BYTES = 64 * 2**10
MAX_LAG_BYTES = 2**20
READ_BYTES = 2**18


@dataclass
class Subscription:
    """How far a client has heard a feed. `slack` is what it was behind when it came."""

    feed: EventFeed
    next_sequence_number: int
    initial_lag_bytes: int

    @property
    def lag_bytes(self) -> int:
        """Bytes that were said and not fetched."""
        if self.next_sequence_number < self.feed.first_sequence_number:
            return self.feed.total_bytes  # what it misses is forgotten already
        return self.feed.total_bytes - self.feed.bytes_before(self.next_sequence_number)


class ClientConnection:
    """The host's end of a socket. Never blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.line_reader = LineReader()
        self.client_name = "somebody"
        self.subscriptions: dict[str, Subscription] = {}
        self._send_buffer = bytearray()
        self._buffered_feed_bytes = (
            0  # how much of it came from feeds, which a client asked for and may take its time over
        )
        sock.setblocking(False)

    def subscribe(self, feed: EventFeed, from_sequence_number: int) -> None:
        """Hear a feed from this line on."""
        self.unsubscribe(feed.session_id)
        listening = Subscription(feed, from_sequence_number, 0)
        listening.initial_lag_bytes = listening.lag_bytes
        self.subscriptions[feed.session_id] = listening
        feed.subscriber_count += 1

    def unsubscribe(self, session_id: str) -> None:
        """Hear this session no longer."""
        if listening := self.subscriptions.pop(session_id, None):
            listening.feed.subscriber_count -= 1

    def queue_message(self, message: RpcMessage) -> None:
        """Owe the client an answer."""
        self._send_buffer += encode(message)

    @property
    def is_too_slow(self) -> bool:
        """Is it a mebibyte behind, in answers or in a feed?"""
        lags = (listening.lag_bytes - listening.initial_lag_bytes for listening in self.subscriptions.values())
        return len(self._send_buffer) - self._buffered_feed_bytes > MAX_LAG_BYTES or any(
            lag > MAX_LAG_BYTES for lag in lags
        )

    @property
    def has_pending_output(self) -> bool:
        """Is there anything to send?"""
        return bool(self._send_buffer) or any(
            listening.feed.line(listening.next_sequence_number) for listening in self.subscriptions.values()
        )

    def receive(self) -> bytes | None:
        """What has arrived; nothing yet is b"", None means that the client is gone."""
        try:
            return self.sock.recv(READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def send(self) -> bool:
        """Send as much as the client takes now; False when it is gone."""
        while True:
            self._fill_send_buffer()
            if not self._send_buffer:
                return True
            try:
                sent = self.sock.send(memoryview(self._send_buffer)[:READ_BYTES].toreadonly())
            except BlockingIOError:
                return True
            except OSError:
                return False
            del self._send_buffer[:sent]
            self._buffered_feed_bytes = min(self._buffered_feed_bytes, len(self._send_buffer))

    def _fill_send_buffer(self) -> None:
        for listening in self.subscriptions.values():
            while len(self._send_buffer) < SEND_BUFFER_BYTES and (
                line := listening.feed.line(listening.next_sequence_number)
            ):
                listening.next_sequence_number += 1
                if line.recipient is None or line.recipient is self:
                    self._send_buffer += line.encoded
                    self._buffered_feed_bytes += len(line.encoded)

    def close(self) -> None:
        """Hang up."""
        for session in list(self.subscriptions):
            self.unsubscribe(session)
        self.sock.close()
