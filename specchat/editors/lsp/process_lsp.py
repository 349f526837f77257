"""The process of the language server, from its descriptors to its exit code.

exit after shutdown, or the end of stdin    0
exit without shutdown                       1
a signal                                    128 + its number
"""

from __future__ import annotations

import asyncio
import os
import signal
from threading import Event as Flag

from pygls.io_ import run_async

from specchat.editors.lsp.server import SpecchatLanguageServer
from specchat.editors.lsp.stdio import StdinReader, StdoutWriter
from specchat.host.stdio_descriptors import StdioDescriptors

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FLUSH_SECONDS = 1.0
EDITOR_POLL_SECONDS = 2.0  # between two looks whether the editor lives


async def serve_lsp(descriptors: StdioDescriptors) -> int:
    """Serve one editor to its end; returns the exit code."""
    incoming, outgoing, serving = (
        StdinReader(descriptors.stdin),
        StdoutWriter(descriptors.stdout),
        SpecchatLanguageServer(),
    )
    protocol = serving.protocol
    protocol.set_writer(outgoing)
    ended = _ExitStatus(incoming)
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.on_signal, number)
    watch = asyncio.create_task(_watch_editor(serving, incoming))
    try:
        await run_async(Flag(), incoming, protocol, error_handler=protocol.on_read_error)
    except SystemExit as left:  # how pygls says that the editor said so
        ended.code = int(left.code or 0)
    watch.cancel()
    serving.stop()
    await asyncio.sleep(0)  # what was stopped answers
    outgoing.flush(FLUSH_SECONDS)
    return ended.code


class _ExitStatus:
    """How it ends."""

    def __init__(self, incoming: StdinReader) -> None:
        self.code, self._incoming = 0, incoming

    def on_signal(self, number: int) -> None:
        self.code = 128 + number
        self._incoming.stop()


async def _watch_editor(server: SpecchatLanguageServer, incoming: StdinReader) -> None:
    """Stop when the editor's process ends: a child of a killed editor may keep the pipe open."""
    while True:
        await asyncio.sleep(EDITOR_POLL_SECONDS)
        if (editor := server.server.process_id) and not _is_alive(editor):
            incoming.stop()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
