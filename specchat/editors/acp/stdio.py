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

from specchat.host.descriptors import read_some, write_all
from specchat.host.protocol import LineReader

LINES_AHEAD = 256  # read before they are wanted
MOST_OWED_BYTES = 2**20  # written before the editor reads


class Special(Enum):
    """What may come instead of a line."""

    TOO_LONG = auto()
    END = auto()


class Pipe:
    """Lines in and out, for one event loop."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | Special] = asyncio.Queue()
        self._room = Semaphore(LINES_AHEAD)
        self._unwritten: SimpleQueue[bytes] = SimpleQueue()
        self._owed = 0
        self._moved = asyncio.Event()
        self._is_stopped = False
        for work in (self._read, self._write):
            Thread(target=work, name=f"acp{work.__name__}", daemon=True).start()

    async def line(self) -> bytes | Special:
        """The next line without its end; END after the last one, or once somebody stopped us."""
        if self._is_stopped:
            return Special.END
        line = await self._lines.get()
        self._room.release()
        return line

    async def send(self, line: bytes) -> None:
        """Owe the editor a line; waits while it is a mebibyte behind."""
        self._owed += len(line)
        self._unwritten.put(line)
        while self._owed > MOST_OWED_BYTES and not self._is_stopped:
            await self._until_moved()

    async def flush(self, seconds: float) -> None:
        """Wait until everything is written, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._owed:
                    await self._until_moved()

    def stop(self) -> None:
        """Let the lines end here."""
        self._is_stopped = True
        self._lines.put_nowait(Special.END)
        self._moved.set()

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _read(self) -> None:
        lines = LineReader()
        with suppress(RuntimeError):  # the loop has ended
            while received := read_some(self._incoming):
                for line in lines.feed(received):
                    self._put(Special.TOO_LONG if line is None else line)
            for line in lines.feed(b"\n"):  # the last line may have no end
                self._put(Special.TOO_LONG if line is None else line)
            self._put(Special.END)

    def _put(self, line: bytes | Special) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _write(self) -> None:
        with suppress(RuntimeError):
            while True:
                line = self._unwritten.get()
                is_heard = write_all(self._outgoing, line)
                self._loop.call_soon_threadsafe(self._note_written, len(line), is_heard)

    def _note_written(self, size: int, is_heard: bool) -> None:
        self._owed -= size
        self._moved.set()
        if not is_heard:
            self.stop()
