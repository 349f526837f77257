"""Framing of the Language Server Protocol: header lines and bodies, as `pygls.io_.run_async` reads them."""

from __future__ import annotations

from specchat.editors.stdio import StdinReader

MAX_HEADER_BYTES = 4096
MAX_BODY_BYTES = 32 * 2**20
TOO_LONG_BODY = b"(a message of more than 32 MiB)"  # not JSON


class MessageReader(StdinReader):
    """Reads header lines and bodies of a given length. An empty result is the end of the input."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._buffer = bytearray()

    async def readline(self) -> bytes:
        """A header line with its end; a line above the limit is cut."""
        while (
            (end := self._buffer.find(b"\n")) < 0
            and len(self._buffer) < MAX_HEADER_BYTES
            and await self._receive_more()
        ):
            pass
        return self._take(end + 1 if end >= 0 else len(self._buffer))

    async def readexactly(self, n: int) -> bytes:
        """`n` bytes, fewer only at the end. A body above the limit is discarded and replaced by TOO_LONG_BODY."""
        if n > MAX_BODY_BYTES:
            while (n := n - len(self._take(n))) and await self._receive_more():
                pass
            return TOO_LONG_BODY
        while len(self._buffer) < n and await self._receive_more():
            pass
        return self._take(n)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _receive_more(self) -> bool:
        chunk = await self.read_chunk()
        self._buffer += chunk
        return bool(chunk)
