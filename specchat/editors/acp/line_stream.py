"""Framing of the Agent Client Protocol: one message on each line. Knows no message."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from specchat.editors.stdio import StdinReader, StdoutWriter
from specchat.host.protocol import LineReader


class LineStatus(Enum):
    TOO_LONG = auto()
    END = auto()


class LineStream:
    def __init__(self, incoming: int, outgoing: int) -> None:
        self._reader, self._writer = StdinReader(incoming), StdoutWriter(outgoing, self.stop)
        self._line_reader = LineReader()
        self._lines: deque[bytes | LineStatus] = deque()
        self._is_stopped = False

    async def read_line(self) -> bytes | LineStatus:
        """The next line without its end; END after the last one or after `stop`."""
        while not self._is_stopped:
            if self._lines:
                return self._lines.popleft()
            chunk = await self._reader.read_chunk()
            lines = self._line_reader.feed(chunk or b"\n")  # the last line may have no newline
            self._lines.extend(LineStatus.TOO_LONG if line is None else line for line in lines)
            if not chunk:
                self._lines.append(LineStatus.END)
        return LineStatus.END

    async def write_line(self, line: bytes) -> None:
        """Queue a line; waits while too many bytes are queued."""
        self._writer.write(line)
        await self._writer.drain()

    async def flush(self, seconds: float) -> None:
        await self._writer.flush(seconds)

    def stop(self) -> None:
        self._is_stopped = True
        self._reader.stop()
        self._writer.stop()
