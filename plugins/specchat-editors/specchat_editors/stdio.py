"""The standard streams of a process that serves an editor: stdout carries the protocol and nothing else.

Threads read and write the descriptors, so that files, pipes and an editor that stops reading are handled alike. Knows
bytes only; the framing of messages is in `acp/editor_connection.py` and `lsp/process_lsp.py`.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, NoReturn

from specchat.errors import HostError
from specchat.host.spawn import runtime_folder
from specchat.log_file import log_to_stderr
from specchat.process_memory import permanent_objects

MAX_LOG_FILES = 5
READ_BYTES = 2**18
MAX_CHUNKS_AHEAD = 64  # read before they are requested
MAX_UNWRITTEN_BYTES = 2**20  # written before the editor reads
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True)
class StdioDescriptors:
    """Duplicates of the descriptors 0, 1 and 2 from the start of the process."""

    stdin: int
    stdout: int
    stderr: int


@dataclass
class ExitStatus:
    """The exit code of the process: 0, or 128 + the number of the signal that ended it."""

    code: int = 0


def run_stdio_server(
    log_name: str, make_server: Callable[[StdioDescriptors], Coroutine[Any, Any, int]], *, keeps_stderr: bool = False
) -> NoReturn:
    """Run a server to its end and exit with its code; an error before that goes to the original stderr.

    `make_server` imports the library of its protocol, which is slow.
    """
    descriptors = redirect_stdio(log_name, keeps_stderr=keeps_stderr)
    try:
        with permanent_objects():
            server = make_server(descriptors)
        code = asyncio.run(server)
    except BaseException:
        sys.stderr.flush()
        os.dup2(descriptors.stderr, 2)
        raise
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a model would keep the process


def redirect_stdio(log_name: str, *, keeps_stderr: bool = False) -> StdioDescriptors:
    """Move the standard streams to other descriptors; everything printed from now on goes to a log file.

    This includes stderr, because some editors show every line of it to their users as an error.
    """
    sys.stdout.flush()
    descriptors = StdioDescriptors(os.dup(0), os.dup(1), os.dup(2))
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.dup(2) if keeps_stderr else _open_log(log_name)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for each in (null, log):
        os.close(each)
    log_to_stderr(logging.WARNING)
    return descriptors


def stop_on_signals(stop: Callable[[], None]) -> ExitStatus:
    """Have signals call `stop` on the running event loop, and set the exit code."""
    status = ExitStatus()

    def on_signal(number: int) -> None:
        status.code = 128 + number
        stop()

    for number in SIGNALS:
        with suppress(NotImplementedError):  # Windows ends the process
            asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    return status


class StdinReader:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._slots = Semaphore(MAX_CHUNKS_AHEAD)
        self._is_ended = False
        Thread(target=self._read, name="editor-read", daemon=True).start()

    async def read_chunk(self) -> bytes:
        """The next bytes; b"" at the end of the input or after `stop`."""
        if self._is_ended:
            return b""
        chunk = await self._chunks.get()
        self._slots.release()
        self._is_ended = self._is_ended or not chunk
        return chunk

    def stop(self) -> None:
        self._is_ended = True
        self._chunks.put_nowait(b"")

    def _read(self) -> None:
        chunk = b"..."
        with suppress(RuntimeError):  # the event loop has ended
            while chunk:
                try:
                    chunk = os.read(self._descriptor, READ_BYTES)
                except OSError:
                    chunk = b""
                self._slots.acquire()
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)


class StdoutWriter:
    """Writes bytes in order for the running event loop; `on_disconnect` is called when the editor stops reading."""

    def __init__(self, descriptor: int, on_disconnect: Callable[[], None] = lambda: None) -> None:
        self._descriptor, self._on_disconnect = descriptor, on_disconnect
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._unwritten_bytes = 0
        self._progressed = asyncio.Event()
        self._is_stopped = False
        Thread(target=self._write, name="editor-write", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Queue these bytes; never blocks."""
        self._unwritten_bytes += len(data)
        self._queue.put(data)

    async def drain(self) -> None:
        """Wait while more than MAX_UNWRITTEN_BYTES are queued."""
        while self._unwritten_bytes > MAX_UNWRITTEN_BYTES and not self._is_stopped:
            await self._wait_for_progress()

    async def flush(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._unwritten_bytes:
                    await self._wait_for_progress()

    def stop(self) -> None:
        """End `drain`: the editor may never read again."""
        self._is_stopped = True
        self._progressed.set()

    def close(self) -> None:
        """Required by pygls; the descriptor ends with the process."""

    async def _wait_for_progress(self) -> None:
        self._progressed.clear()
        await self._progressed.wait()

    def _write(self) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            while True:
                data = self._queue.get()
                is_connected = _write_all(self._descriptor, data)
                self._loop.call_soon_threadsafe(self._on_written, len(data), is_connected)

    def _on_written(self, size: int, is_connected: bool) -> None:
        self._unwritten_bytes -= size
        self._progressed.set()
        if not is_connected:
            self._on_disconnect()


def _write_all(descriptor: int, data: bytes) -> bool:
    """Write everything; False when the other side is closed."""
    remaining = memoryview(data)
    try:
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
    except OSError:
        return False
    return True


def _open_log(log_name: str) -> int:
    try:
        folder = runtime_folder()
        for old in sorted(folder.glob(f"{log_name}-*.log"), key=_modified_at)[: 1 - MAX_LOG_FILES]:
            old.unlink(missing_ok=True)
        return os.open(folder / f"{log_name}-{os.getpid()}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except (OSError, HostError):
        return os.open(os.devnull, os.O_WRONLY)


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
