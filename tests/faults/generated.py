"""Generated lines, frames and requests for everything that reads from outside, repeatable by seed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

METHODS = (
    "initialize", "session/new", "session/prompt", "session/cancel", "session/load", "fs/read_text_file",
    "textDocument/didOpen", "textDocument/didChange", "textDocument/inlineCompletion", "workspace/executeCommand",
    "hello", "ask", "stats", "", None, 7, "shutdown?", "$/cancelRequest",
)  # fmt: skip
VALUES = (
    None, True, -1, 0, 2**70, 1.5, 1e308, "", "x", "\u2028\x00\x1b]52;c;aGk=\x07", [], [1], {}, {"uri": "file:///etc/passwd"},
    "../../etc/passwd", "\ud800", [[[[]]]], {"text": "count 2"}, "y" * 5000,
)  # fmt: skip
NAMES = (
    "sessionId", "cwd", "prompt", "mcpServers", "protocolVersion", "textDocument", "position", "contentChanges", "type",
    "text", "request", "session", "turn", "messages", "model", "stream", "max_tokens", "temperature", "stop", "tools",
)  # fmt: skip
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Survived:
    """What came of generated input: how much was sent, and whether the program answered correctly afterwards."""

    sent: int
    is_alive: bool
    exit_code: int | None = 0


def generated_message(dice: random.Random) -> bytes:
    """One message: JSON that fits no schema, JSON that is cut or damaged, deep nesting, or bytes."""
    params = {dice.choice(NAMES): dice.choice(VALUES) for _ in range(dice.randint(0, 5))}
    message = {"jsonrpc": "2.0", "id": dice.choice([1, "a", None, 2.5, [], {}]), "method": dice.choice(METHODS)}
    message = {**message, "params": dice.choice([params, [params], "text", None]), **dice.choice([{}, params])}
    line = json.dumps(message).encode()
    match kind := dice.randint(0, 11):
        case 3:
            return b"[" * dice.choice([10, 1000, 100_000])
        case 4:
            return b'{"a":' * dice.choice([10, 5000]) + b"1" + b"}" * 10
        case _:
            return damaged(line, kind, dice)


def damaged(line: bytes, kind: int, dice: random.Random) -> bytes:
    """The line with another byte (0), cut (1), replaced by random bytes (2), or as it is."""
    match kind:
        case 0:
            at = dice.randrange(len(line))
            return line[:at] + bytes([dice.randrange(256)]) + line[at + 1 :]
        case 1:
            return line[: dice.randrange(len(line))]
        case 2:
            return dice.randbytes(dice.randint(0, 60))
        case _:
            return line


def as_line(message: bytes) -> bytes:
    return message.replace(b"\n", b" ") + b"\n"


def as_frame(message: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(message) + message


def feed_process(
    arguments: list[str], framed: Callable[[bytes], bytes], last: bytes, expected: bytes, count: int, seed: int
) -> Survived:
    """Send generated messages to a program's standard input, then a valid one; `expected` is in its answer."""
    dice = random.Random(seed)
    command = [sys.executable, "-m", "tests.host.served", *arguments]  # specchat, with the fake host
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ.copy()
    ) as process:
        assert process.stdin and process.stdout
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        waiting, received = memoryview(b"".join(framed(generated_message(dice)) for _ in range(count)) + last), b""
        deadline = time.monotonic() + WAIT_SECONDS + count / 50
        while time.monotonic() < deadline and not (expected in received and not waiting):
            readable, writable, _ = select.select([process.stdout], [process.stdin] if waiting else [], [], 1.0)
            if writable:
                try:
                    waiting = waiting[os.write(process.stdin.fileno(), waiting[:65536]) :]
                except BrokenPipeError:
                    break
            if readable and not (chunk := os.read(process.stdout.fileno(), 2**20)):
                break
            received = (received + chunk)[-(2**21) :] if readable else received
        is_alive = expected in received
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(120)
        if process.returncode is None:
            process.kill()
    return Survived(0 if waiting else count, is_alive, process.returncode)


LAST_REQUEST = b'{"jsonrpc":"2.0","id":"last","method":"initialize","params":{"protocolVersion":1,"capabilities":{}}}'


def feed(protocol: str, count: int, seed: int) -> Survived:
    """Send so many generated messages to `acp` or `lsp`, the commands of the plugin specchat-editors."""
    framed = as_line if protocol == "acp" else as_frame
    return feed_process([protocol], framed, framed(LAST_REQUEST), b'"last"', count, seed)


@contextlib.contextmanager
def http_server() -> Iterator[int]:
    """The port of `specchat serve`, of the plugin specchat-serve, with the fake host."""
    command = [sys.executable, "-m", "tests.host.served", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        address = next(line for line in process.stderr if "http://" in line)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield int(re.search(r":(\d+)/", address)[1])  # pyright: ignore[reportOptionalSubscript]
        finally:
            process.terminate()
            process.wait(120)


def is_answering(port: int) -> bool:
    """Whether the server answers a question now."""
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "the last question"}]})
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
    with contextlib.closing(line):
        line.request("GET", "/v1/models")
        model = json.loads(line.getresponse().read())["data"][0]["id"]
        line.request("POST", "/v1/chat/completions", body.replace('"chat"', json.dumps(model)))
        return b"the last question" in line.getresponse().read()


@dataclass(frozen=True)
class HttpRequests:
    sent: int
    answered: int


def feed_http(port: int, count: int, seed: int) -> HttpRequests:
    """Send generated requests to a server, some of them slow or cut."""
    dice, sent, answered = random.Random(seed), 0, 0
    for _ in range(count):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            peer.sendall(generated_request(dice))
            sent += 1
            if dice.random() < 0.5:
                peer.shutdown(socket.SHUT_WR)
            peer.settimeout(2)
            answered += peer.recv(65536).startswith(b"HTTP/1.")
    return HttpRequests(sent, answered)


API_PATHS = [
    b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages", b"/v1/messages/count_tokens",
    b"/api/chat", b"/api/generate", b"/api/show", b"/v1/models", b"/health", b"/",
]  # fmt: skip


def generated_request(dice: random.Random) -> bytes:
    body = generated_message(dice)
    method = dice.choice([b"POST", b"GET", b"PUT", b"\xff", b"OPTIONS"])
    path = dice.choice([*API_PATHS, b"/../../etc/passwd", b"/%00", b"x" * 9000])
    length = dice.choice([len(body), len(body), len(body) + 1, -1, 10**12])
    host = dice.choice([b"127.0.0.1", b"evil.example", b"", b"\xff"])
    head = b"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (
        method, path, host, length,
    )  # fmt: skip
    return dice.choice([head + b"Connection: close\r\n\r\n" + body, head, dice.randbytes(50)])
