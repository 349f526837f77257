"""Bytes from the editor and bytes to it, and nothing else on its descriptor, whoever prints what.

Two threads read and write, so that files, pipes and an editor that stopped reading are all alike. Knows no message.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from queue import SimpleQueue
from threading import Event as Flag
from threading import Semaphore, Thread

from specchat.host.descriptors import read_some, write_all

PIECES_AHEAD = 64  # read before they are wanted
HEADER_BYTES = 4096  # no header is longer
BODY_BYTES = 32 * 2**20  # no message is longer; a longer one is swallowed
TOO_LONG = b"(a message of more than 32 MiB)"


class Incoming:
    """What the editor sends, for one event loop: a line, or so many bytes. Nothing means that it has ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = Semaphore(PIECES_AHEAD)
        self._held = bytearray()
        self._is_over = False
        Thread(target=self._read, name="lsp-read", daemon=True).start()

    async def readline(self) -> bytes:
        """A header line with its end; what is too long for one is cut."""
        while (end := self._held.find(b"\n")) < 0 and len(self._held) < HEADER_BYTES and await self._more():
            pass
        return self._taken(end + 1 if end >= 0 else len(self._held))

    async def readexactly(self, n: int) -> bytes:
        """So many bytes, fewer only at the end. A message that is too long is swallowed; what is left is no JSON."""
        if n > BODY_BYTES:
            await self._swallow(n)
            return TOO_LONG
        while len(self._held) < n and await self._more():
            pass
        return self._taken(n)

    def end(self) -> None:
        """Let nothing more come, as if the editor had ended."""
        self._is_over = True
        self._pieces.put_nowait(b"")

    async def _swallow(self, count: int) -> None:
        while (count := count - len(self._taken(count))) and await self._more():
            pass

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    async def _more(self) -> bool:
        if self._is_over:
            return False
        piece = await self._pieces.get()
        self._room.release()
        self._held += piece
        self._is_over = self._is_over or not piece
        return bool(piece)

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            while True:
                piece = read_some(self._descriptor)
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
                if not piece:
                    return


class Outgoing:
    """What the editor gets, in order; `write` never waits for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: SimpleQueue[bytes | Flag] = SimpleQueue()
        Thread(target=self._write, name="lsp-write", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Owe the editor these bytes."""
        self._waiting.put(data)

    def close(self) -> None:
        """Nothing to do: the descriptor ends with the process."""

    def flush(self, seconds: float) -> None:
        """Wait until everything is written, but not for ever."""
        written = Flag()
        self._waiting.put(written)
        written.wait(seconds)

    def _write(self) -> None:
        is_heard = True
        while True:
            data = self._waiting.get()
            if isinstance(data, Flag):
                data.set()
            elif is_heard:
                is_heard = write_all(self._descriptor, data)
