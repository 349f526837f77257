"""Bytes: whole lines from the editor, whole lines to it, and nothing else on its descriptor, whoever prints what.

Two threads read and write, so that files, pipes, terminals and an editor that stopped reading are all alike. Knows no
message.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum, auto
from queue import SimpleQueue
from threading import Semaphore, Thread

from specchat.host.protocol import LineReader
from specchat.host.stdio_descriptors import read_available, write_all

MAX_LINES_AHEAD = 256  # read before they are wanted
MAX_UNWRITTEN_BYTES = 2**20  # written before the editor reads


class LineStatus(Enum):
    """What may come instead of a line."""

    TOO_LONG = auto()
    END = auto()


class StdioLines:
    """Lines in and out, for one event loop."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._loop = asyncio.get_running_loop()
        self._read_queue: asyncio.Queue[bytes | LineStatus] = asyncio.Queue()
        self._read_slots = Semaphore(MAX_LINES_AHEAD)
        self._write_queue: SimpleQueue[bytes] = SimpleQueue()
        self._unwritten_bytes = 0
        self._write_progressed = asyncio.Event()
        self._is_stopped = False
        for work in (self._read, self._write):
            Thread(target=work, name=f"acp{work.__name__}", daemon=True).start()

    async def read_line(self) -> bytes | LineStatus:
        """The next line without its end; END after the last one, or once somebody stopped us."""
        if self._is_stopped:
            return LineStatus.END
        line = await self._read_queue.get()
        self._read_slots.release()
        return line

    async def write_line(self, line: bytes) -> None:
        """Owe the editor a line; waits while it is a mebibyte behind."""
        self._unwritten_bytes += len(line)
        self._write_queue.put(line)
        while self._unwritten_bytes > MAX_UNWRITTEN_BYTES and not self._is_stopped:
            await self._wait_for_write()

    async def flush(self, seconds: float) -> None:
        """Wait until everything is written, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._unwritten_bytes:
                    await self._wait_for_write()

    def stop(self) -> None:
        """Let the lines end here."""
        self._is_stopped = True
        self._read_queue.put_nowait(LineStatus.END)
        self._write_progressed.set()

    async def _wait_for_write(self) -> None:
        self._write_progressed.clear()
        await self._write_progressed.wait()

    def _read(self) -> None:
        lines = LineReader()
        with suppress(RuntimeError):  # the loop has ended
            while received := read_available(self._incoming):
                for line in lines.feed(received):
                    self._enqueue(LineStatus.TOO_LONG if line is None else line)
            for line in lines.feed(b"\n"):  # the last line may have no end
                self._enqueue(LineStatus.TOO_LONG if line is None else line)
            self._enqueue(LineStatus.END)

    def _enqueue(self, line: bytes | LineStatus) -> None:
        self._read_slots.acquire()
        self._loop.call_soon_threadsafe(self._read_queue.put_nowait, line)

    def _write(self) -> None:
        with suppress(RuntimeError):
            while True:
                line = self._write_queue.get()
                is_heard = write_all(self._outgoing, line)
                self._loop.call_soon_threadsafe(self._note_written, len(line), is_heard)

    def _note_written(self, size: int, has_reader: bool) -> None:
        self._unwritten_bytes -= size
        self._write_progressed.set()
        if not has_reader:
            self.stop()
