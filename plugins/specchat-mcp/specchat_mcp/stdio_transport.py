"""The transport to an MCP server that is a program: one JSON-RPC message per line of its standard input and output.

The transport of the package `mcp` keeps a line of any length in memory, forwards the server's stderr to the terminal,
and logs each line that is no message. Here everything that a server can print is bounded, and the end of the
program has a reason in words. Knows messages, and not what they mean.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from specchat.errors import last_output_line
from specchat_mcp.server_settings import ServerSettings

MAX_BYTES = 16 * 2**20  # of messages, since the last request
MAX_MESSAGES = 10_000  # since the last request
MAX_GARBAGE_BYTES = 64 * 2**10  # of lines that are no messages; some servers print a greeting
STDERR_BYTES = 4096  # the end of it is kept, for the reason why a server ended
EXIT_SECONDS = 0.5  # between the end of the output and that of the program
STOP_SECONDS = 1.0  # for a program to end when its input is closed, and again when it was terminated

Stream = Any  # the streams of anyio, which are generic over the messages


@dataclass
class ServerProcess:
    """What is known of the program: whether it has ended, and why."""

    failure: str = ""
    has_ended: anyio.Event = field(default_factory=anyio.Event)

    def end(self, failure: str) -> None:
        self.failure = self.failure or failure
        self.has_ended.set()


class FloodError(Exception):
    """The server prints more than anybody asked for."""


@dataclass
class _Allowance:
    """How much a server may print until the next request."""

    bytes_left: int = MAX_BYTES
    messages_left: int = MAX_MESSAGES
    garbage_left: int = MAX_GARBAGE_BYTES

    def renew(self) -> None:
        self.bytes_left, self.messages_left = MAX_BYTES, MAX_MESSAGES

    def take_bytes(self, count: int) -> None:
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise FloodError(f"printed more than {MAX_BYTES // 2**20} MiB for one request, and was stopped")

    def take_message(self) -> None:
        self.messages_left -= 1
        if self.messages_left < 0:
            raise FloodError(f"sent more than {MAX_MESSAGES} messages for one request, and was stopped")

    def take_garbage(self, line: bytes) -> None:
        self.garbage_left -= len(line) + 1
        if self.garbage_left < 0:
            shown = line[:60].decode(errors="replace")
            raise FloodError(f"prints other text than messages of MCP ({shown!r}), and was stopped")


@asynccontextmanager
async def stdio_transport(settings: ServerSettings, state: ServerProcess) -> AsyncGenerator[tuple[Stream, Stream]]:
    """Start the program and exchange messages; at the end, the program is stopped. OSError if it cannot be started."""
    process = await _start(settings)
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    pipes = _Pipes(process, state, incoming, outgoing)
    async with anyio.create_task_group() as tasks:
        for task in (pipes.read_stdout, pipes.read_stderr, pipes.write_stdin):
            tasks.start_soon(task)
        try:
            yield read_stream, write_stream
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process, (None, _terminate, _kill) if not state.failure else (_terminate, _kill))
                for stream in (read_stream, write_stream, incoming, outgoing):
                    await stream.aclose()
            tasks.cancel_scope.cancel()


@dataclass
class _Pipes:
    """The pipes of the program, each with a task that serves it."""

    process: Process
    state: ServerProcess
    incoming: Stream
    outgoing: Stream
    allowance: _Allowance = field(default_factory=_Allowance)
    stderr: bytearray = field(default_factory=bytearray)  # its end

    async def read_stdout(self) -> None:
        assert self.process.stdout
        try:
            await _read_messages(self.process.stdout, self.incoming, self.allowance)
        except FloodError as error:
            self.state.end(str(error))
        else:
            with anyio.move_on_after(EXIT_SECONDS):
                await self.process.wait()
            self.state.end(_reason(self.process.returncode, self.stderr))
        await self.incoming.aclose()  # calls that wait for an answer end

    async def read_stderr(self) -> None:
        assert self.process.stderr
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                self.stderr.extend(await self.process.stderr.receive())
                del self.stderr[:-STDERR_BYTES]

    async def write_stdin(self) -> None:
        assert self.process.stdin
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for item in self.outgoing:
                self.allowance.renew()
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self.process.stdin.send(line.encode() + b"\n")


async def _start(settings: ServerSettings) -> Process:
    environment = {**get_default_environment(), **dict(settings.env)}
    process = None
    with anyio.CancelScope(shield=True):  # a program that has just started must be known, to be stopped
        process = await anyio.open_process(
            [*settings.command], env=environment, cwd=settings.folder, start_new_session=os.name == "posix"
        )
    assert process
    return process


async def _read_messages(stdout: ByteReceiveStream, incoming: Stream, allowance: _Allowance) -> None:
    pending = bytearray()
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            chunk = await stdout.receive()
            allowance.take_bytes(len(chunk))
            start = len(pending)
            pending += chunk
            if pending.find(b"\n", start) < 0:
                continue
            *lines, rest = pending.split(b"\n")
            pending = rest
            for line in lines:
                if message := _parse(bytes(line), allowance):
                    await incoming.send(message)


def _parse(line: bytes, allowance: _Allowance) -> SessionMessage | None:
    try:  # not by `validate_json`, for which a schema of 200 levels is no JSON
        message = jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
    except (ValueError, RecursionError):
        allowance.take_garbage(line)
        return None
    allowance.take_message()
    return SessionMessage(message)


def _reason(exit_code: int | None, stderr: bytearray) -> str:
    last_line = last_output_line(stderr.decode(errors="replace"), "")
    how = "closed its output" if exit_code is None else f"ended with exit code {exit_code}"
    return f"{how}: {last_line}" if last_line else how


async def _stop(process: Process, ways: Sequence[Callable[[Process], None] | None]) -> None:
    """Close the input of the program, and end it with all programs that it started if that is not enough."""
    assert process.stdin
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    for end in ways:
        if end:
            end(process)
        with anyio.move_on_after(STOP_SECONDS):
            await process.wait()
        if process.returncode is not None:
            break
    if os.name == "posix":
        _kill(process)  # what it started and left behind
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.aclose()


def _terminate(process: Process) -> None:
    _signal(process, signal.SIGTERM)


def _kill(process: Process) -> None:
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _signal(process: Process, number: int) -> None:
    """To the program and all that it started, which on Windows is the program alone."""
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, number)  # the program leads a session of its own
        else:
            process.send_signal(signal.Signals(number))
