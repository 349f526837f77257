"""Bytes from the editor and bytes to it, and nothing else on its descriptor, whoever prints what.

Two threads read and write, so that files, pipes and an editor that stopped reading are all alike. Knows no message.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from queue import SimpleQueue
from threading import Event as Flag
from threading import Semaphore, Thread

from specchat.host.stdio_descriptors import read_available, write_all

MAX_CHUNKS_AHEAD = 64  # read before they are wanted
MAX_HEADER_BYTES = 4096  # no header is longer
MAX_BODY_BYTES = 32 * 2**20  # no message is longer; a longer one is swallowed
TOO_LONG_BODY = b"(a message of more than 32 MiB)"


class StdinReader:
    """What the editor sends, for one event loop: a line, or so many bytes. Nothing means that it has ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._read_slots = Semaphore(MAX_CHUNKS_AHEAD)
        self._buffer = bytearray()
        self._is_ended = False
        Thread(target=self._read, name="lsp-read", daemon=True).start()

    async def readline(self) -> bytes:
        """A header line with its end; what is too long for one is cut."""
        while (
            (end := self._buffer.find(b"\n")) < 0
            and len(self._buffer) < MAX_HEADER_BYTES
            and await self._receive_more()
        ):
            pass
        return self._take(end + 1 if end >= 0 else len(self._buffer))

    async def readexactly(self, n: int) -> bytes:
        """So many bytes, fewer only at the end. A message that is too long is swallowed; what is left is no JSON."""
        if n > MAX_BODY_BYTES:
            await self._discard(n)
            return TOO_LONG_BODY
        while len(self._buffer) < n and await self._receive_more():
            pass
        return self._take(n)

    def stop(self) -> None:
        """Let nothing more come, as if the editor had ended."""
        self._is_ended = True
        self._chunks.put_nowait(b"")

    async def _discard(self, count: int) -> None:
        while (count := count - len(self._take(count))) and await self._receive_more():
            pass

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _receive_more(self) -> bool:
        if self._is_ended:
            return False
        piece = await self._chunks.get()
        self._read_slots.release()
        self._buffer += piece
        self._is_ended = self._is_ended or not piece
        return bool(piece)

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            while True:
                piece = read_available(self._descriptor)
                self._read_slots.acquire()
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, piece)
                if not piece:
                    return


class StdoutWriter:
    """What the editor gets, in order; `write` never waits for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._write_queue: SimpleQueue[bytes | Flag] = SimpleQueue()
        Thread(target=self._write, name="lsp-write", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Owe the editor these bytes."""
        self._write_queue.put(data)

    def close(self) -> None:
        """Nothing to do: the descriptor ends with the process."""

    def flush(self, seconds: float) -> None:
        """Wait until everything is written, but not for ever."""
        written = Flag()
        self._write_queue.put(written)
        written.wait(seconds)

    def _write(self) -> None:
        is_heard = True
        while True:
            data = self._write_queue.get()
            if isinstance(data, Flag):
                data.set()
            elif is_heard:
                is_heard = write_all(self._descriptor, data)
