"""One client of the host: what it may still send us, and what we still owe it.

Lines are fetched from the feeds only while the client reads, so a slow one costs the host 64 KiB and not its whole lag.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from specchat.host.event_feed import Feed
from specchat.host.protocol import LineReader, Message, encode

FETCH_BYTES = 64 * 2**10
LAG_BYTES = 2**20
READ_BYTES = 2**18


@dataclass
class Listening:
    """How far a client has heard a feed. `slack` is what it was behind when it came."""

    feed: Feed
    next: int
    slack: int

    @property
    def lag(self) -> int:
        """Bytes that were said and not fetched."""
        if self.next < self.feed.first:
            return self.feed.bytes  # what it misses is forgotten already
        return self.feed.bytes - self.feed.bytes_before(self.next)


class Connection:
    """The host's end of a socket. Never blocks."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.reader = LineReader()
        self.name = "somebody"
        self.feeds: dict[str, Listening] = {}
        self._out = bytearray()
        self._fetched = 0  # how much of it came from feeds, which a client asked for and may take its time over
        peer.setblocking(False)

    def listen(self, feed: Feed, start: int) -> None:
        """Hear a feed from this line on."""
        self.leave(feed.session)
        listening = Listening(feed, start, 0)
        listening.slack = listening.lag
        self.feeds[feed.session] = listening
        feed.listeners += 1

    def leave(self, session: str) -> None:
        """Hear this session no longer."""
        if listening := self.feeds.pop(session, None):
            listening.feed.listeners -= 1

    def say(self, message: Message) -> None:
        """Owe the client an answer."""
        self._out += encode(message)

    @property
    def is_too_slow(self) -> bool:
        """Is it a mebibyte behind, in answers or in a feed?"""
        lags = (listening.lag - listening.slack for listening in self.feeds.values())
        return len(self._out) - self._fetched > LAG_BYTES or any(lag > LAG_BYTES for lag in lags)

    @property
    def owes(self) -> bool:
        """Is there anything to send?"""
        return bool(self._out) or any(listening.feed.line(listening.next) for listening in self.feeds.values())

    def receive(self) -> bytes | None:
        """What has arrived; nothing yet is b"", None means that the client is gone."""
        try:
            return self.peer.recv(READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def send(self) -> bool:
        """Send as much as the client takes now; False when it is gone."""
        while True:
            self._fetch()
            if not self._out:
                return True
            try:
                sent = self.peer.send(memoryview(self._out)[:READ_BYTES].toreadonly())
            except BlockingIOError:
                return True
            except OSError:
                return False
            del self._out[:sent]
            self._fetched = min(self._fetched, len(self._out))

    def _fetch(self) -> None:
        for listening in self.feeds.values():
            while len(self._out) < FETCH_BYTES and (line := listening.feed.line(listening.next)):
                listening.next += 1
                if line.only is None or line.only is self:
                    self._out += line.text
                    self._fetched += len(line.text)

    def close(self) -> None:
        """Hang up."""
        for session in list(self.feeds):
            self.leave(session)
        self.peer.close()
