"""The process of the language server, from the framing of its messages to its exit code.

exit after shutdown, or the end of stdin    0
exit without shutdown                       1
a signal                                    128 + its number
"""

import asyncio
import os
from threading import Event as Flag

from pygls.io_ import run_async

from specchat_editors.lsp.server import SettingsOf, SpecchatLanguageServer
from specchat_editors.stdio import StdinReader, StdioDescriptors, StdoutWriter, stop_on_signals

MAX_HEADER_BYTES = 4096
MAX_BODY_BYTES = 32 * 2**20
TOO_LONG_BODY = b"(a message of more than 32 MiB)"  # not JSON
FLUSH_SECONDS = 1.0
EDITOR_POLL_SECONDS = 2.0  # between two checks whether the editor's process runs


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


async def serve_lsp(descriptors: StdioDescriptors, settings_of: SettingsOf) -> int:
    reader, writer = MessageReader(descriptors.stdin), StdoutWriter(descriptors.stdout)
    server = SpecchatLanguageServer(settings_of)
    protocol = server.protocol
    protocol.set_writer(writer)
    status = stop_on_signals(reader.stop)
    watch = asyncio.create_task(_watch_editor(server, reader))
    try:
        await run_async(Flag(), reader, protocol, error_handler=protocol.on_read_error)
    except SystemExit as error:  # raised by pygls for the notification `exit`
        status.code = int(error.code or 0)
    watch.cancel()
    server.stop()
    await asyncio.sleep(0)  # let the cancelled requests answer
    await writer.flush(FLUSH_SECONDS)
    return status.code


async def _watch_editor(server: SpecchatLanguageServer, reader: MessageReader) -> None:
    """Stop when the editor's process ends: a child of a killed editor may keep the pipe open."""
    while True:
        await asyncio.sleep(EDITOR_POLL_SECONDS)
        if (editor := server.server.process_id) and not _is_alive(editor):
            reader.stop()


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # where signal 0 is Ctrl-C; the pipe of an editor that ended is closed
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
