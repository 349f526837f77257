"""The host's side of one client connection: its subscriptions and its send buffer.

The buffer takes lines from the event feeds only while the client reads, so a slow client costs the host 64 KiB.
"""

import socket
from dataclasses import dataclass

from specchat.host.event_feed import EventFeed
from specchat.host.protocol import LineReader, RpcMessage, encode

SEND_BUFFER_BYTES = 64 * 2**10
MAX_LAG_BYTES = 2**20
READ_BYTES = 2**18


@dataclass
class Subscription:
    """The position of a client in an event feed. `initial_lag_bytes` is its lag when it subscribed."""

    feed: EventFeed
    next_sequence_number: int
    initial_lag_bytes: int = 0

    @property
    def lag_bytes(self) -> int:
        if self.next_sequence_number < self.feed.first_sequence_number:
            return self.feed.total_bytes  # the feed has already dropped these lines
        return self.feed.total_bytes - self.feed.bytes_before(self.next_sequence_number)


class ClientConnection:
    """A non-blocking socket to one client."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.line_reader = LineReader()
        self.client_name = "unknown"
        self.subscriptions: dict[str, Subscription] = {}
        self._send_buffer = bytearray()
        self._buffered_feed_bytes = 0  # part of the buffer; does not count against a slow client
        sock.setblocking(False)

    def subscribe(self, feed: EventFeed, from_sequence_number: int) -> None:
        self.unsubscribe(feed.session_id)
        subscription = Subscription(feed, from_sequence_number)
        subscription.initial_lag_bytes = subscription.lag_bytes
        self.subscriptions[feed.session_id] = subscription
        feed.subscriber_count += 1

    def unsubscribe(self, session_id: str) -> None:
        if subscription := self.subscriptions.pop(session_id, None):
            subscription.feed.subscriber_count -= 1

    def queue_message(self, message: RpcMessage) -> None:
        self._send_buffer += encode(message)

    @property
    def is_too_slow(self) -> bool:
        """Whether the client is more than MAX_LAG_BYTES behind, in responses or in a feed."""
        lags = (each.lag_bytes - each.initial_lag_bytes for each in self.subscriptions.values())
        response_bytes = len(self._send_buffer) - self._buffered_feed_bytes
        return response_bytes > MAX_LAG_BYTES or any(lag > MAX_LAG_BYTES for lag in lags)

    @property
    def has_pending_output(self) -> bool:
        subscriptions = self.subscriptions.values()
        return bool(self._send_buffer) or any(each.feed.line(each.next_sequence_number) for each in subscriptions)

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
        for each in self.subscriptions.values():
            while len(self._send_buffer) < SEND_BUFFER_BYTES and (line := each.feed.line(each.next_sequence_number)):
                each.next_sequence_number += 1
                if line.recipient is None or line.recipient is self:
                    self._send_buffer += line.encoded
                    self._buffered_feed_bytes += len(line.encoded)

    def close(self) -> None:
        for session_id in list(self.subscriptions):
            self.unsubscribe(session_id)
        self.sock.close()
