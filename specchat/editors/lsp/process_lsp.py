"""The process of the language server, from its descriptors to its exit code.

exit after shutdown, or the end of stdin    0
exit without shutdown                       1
a signal                                    128 + its number
"""

from __future__ import annotations

import asyncio
import os
from threading import Event as Flag

from pygls.io_ import run_async

from specchat.editors.lsp.message_reader import MessageReader
from specchat.editors.lsp.server import SpecchatLanguageServer
from specchat.editors.stdio import StdioDescriptors, StdoutWriter, stop_on_signals

FLUSH_SECONDS = 1.0
EDITOR_POLL_SECONDS = 2.0  # between two checks whether the editor's process runs


async def serve_lsp(descriptors: StdioDescriptors) -> int:
    """Serve one editor to its end; returns the exit code."""
    reader, writer = MessageReader(descriptors.stdin), StdoutWriter(descriptors.stdout)
    server = SpecchatLanguageServer()
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
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
