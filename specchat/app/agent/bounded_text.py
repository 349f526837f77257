"""Texts for a model that may be endless: their beginning and their end are kept, and how much is missing is said."""

from __future__ import annotations

from collections import deque

from specchat.chat.shortened_text import bounded

__all__ = ["HeadAndTail", "bounded"]

BINARY_NOTE = "[{size} bytes of binary data, which are not shown]"


class HeadAndTail:
    """Bytes as they come; holds a beginning and an end of at most `max_bytes` each, whatever passes through it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = self._max_bytes - len(self._head)
        self._head += piece[:room]
        if rest := piece[max(0, room) :]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._max_bytes:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        """What is held as text; data that is not text is counted and not shown."""
        head, tail = bytes(self._head), b"".join(self._tail)[-self._max_bytes :]
        if b"\0" in head or b"\0" in tail:
            return BINARY_NOTE.format(size=self.size)
        left_out = self.size - len(head) - len(tail)
        if not left_out:
            return (head + tail).decode(errors="replace")
        note = f"\n[… {left_out} bytes left out …]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")
