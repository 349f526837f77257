"""One JSON-RPC message on each line, between the editor and the SDK: answers what the SDK cannot process.

Version 0.12 of the SDK fails on a JSON line that is not an object, does not answer invalid JSON, has no size limit,
serves requests before `initialize`, routes neither `session/delete` nor `logout` nor `$/cancel_request`, requires the
`mcpServers` that editors omit, and lets `_meta` replace arguments of its handlers. The guard uses the last one: it puts
the id of a request there, so that a handler can act once its response is sent.

Knows the JSON-RPC envelope and not what the methods mean.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import cast

from specchat.editors.stdio import StdinReader, StdoutWriter
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    PARSE_ERROR,
    JsonObject,
    LineReader,
)

RequestId = str | int | float | None
UNROUTED_METHODS = frozenset({"session/delete", "logout"})  # renamed: the SDK passes extension methods on
METHODS_WITH_REQUEST_ID = frozenset({"session/new", "session/load", "session/resume", "session/prompt"})
METHODS_WITH_MCP_SERVERS = frozenset({"session/new", "session/load"})
DRAIN_SECONDS = 1.5  # for open requests, after the editor disconnected


class LineStatus(Enum):
    TOO_LONG = auto()
    END = auto()


class LineStream:
    def __init__(self, incoming: int, outgoing: int) -> None:
        self._reader, self._writer = StdinReader(incoming), StdoutWriter(outgoing, self.stop)
        self._line_reader = LineReader()
        self._lines: deque[bytes | LineStatus] = deque()
        self._is_stopped = False

    async def read_line(self) -> bytes | LineStatus:
        """The next line without its end; END after the last one or after `stop`."""
        while not self._is_stopped:
            if self._lines:
                return self._lines.popleft()
            chunk = await self._reader.read_chunk()
            lines = self._line_reader.feed(chunk or b"\n")  # the last line may have no newline
            self._lines.extend(LineStatus.TOO_LONG if line is None else line for line in lines)
            if not chunk:
                self._lines.append(LineStatus.END)
        return LineStatus.END

    async def write_line(self, line: bytes) -> None:
        """Queue a line; waits while too many bytes are queued."""
        self._writer.write(line)
        await self._writer.drain()

    async def flush(self, seconds: float) -> None:
        await self._writer.flush(seconds)

    def stop(self) -> None:
        self._is_stopped = True
        self._reader.stop()
        self._writer.stop()


class MessageGuard:
    """A transport for the SDK: `send`, `receive` and `close`."""

    def __init__(self, stream: LineStream) -> None:
        self._stream = stream
        self._is_initialized = False
        self._open_requests: dict[RequestId, str] = {}  # id -> method, of requests without a response
        self._own_requests: dict[RequestId, str] = {}  # id -> session, of our requests without a response
        self._all_answered = asyncio.Event()
        self.on_response_sent: Callable[[RequestId], None] = lambda _id: None
        self.on_request_cancelled: Callable[[RequestId], None] = lambda _id: None
        self.on_disconnect: Callable[[], None] = lambda: None

    async def send(self, message: JsonObject) -> None:
        is_response = "method" not in message
        if is_response:
            _clean_error(message)
        elif "id" in message:
            self._own_requests[message["id"]] = str(message["params"].get("sessionId"))
        await self._write(message)
        if is_response:
            self._on_response(message)

    async def receive(self) -> JsonObject | None:
        """The next message that the SDK can process; None at the end, after the open requests are answered."""
        while (line := await self._stream.read_line()) is not LineStatus.END:
            message = await self._parse_line(line)
            if message is not None:
                return message
        self.on_disconnect()
        await self._wait_until_answered()
        return None

    async def close(self) -> None:
        self._stream.stop()

    async def cancel_own_requests(self, session: str) -> None:
        for id in [id for id, owner in self._own_requests.items() if owner == session]:
            del self._own_requests[id]
            await self.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}})

    async def _parse_line(self, line: bytes | LineStatus) -> JsonObject | None:
        if isinstance(line, LineStatus):
            return await self._send_error(None, INVALID_REQUEST, f"a line may hold at most {MAX_LINE_BYTES} bytes")
        if not line:
            return None
        try:
            message = json.loads(line.decode("utf-8-sig"), parse_constant=_reject_constant)
            if rb"\ud" in line.lower():
                json.dumps(message, ensure_ascii=False).encode()  # fails for a lone surrogate
        except (ValueError, RecursionError):
            return await self._send_error(None, PARSE_ERROR, "this line is not JSON")
        if not isinstance(message, dict) or cast("JsonObject", message).get("jsonrpc") != "2.0":
            return await self._send_error(None, INVALID_REQUEST, "a line must hold one JSON-RPC 2.0 object; no batches")
        return await self._check_envelope(cast("JsonObject", message))

    async def _check_envelope(self, message: JsonObject) -> JsonObject | None:
        id, method = message.get("id"), message.get("method")
        if isinstance(id, bool | list | dict) or not isinstance(method, str | None):
            return await self._send_error(None, INVALID_REQUEST, "an id must be a string or number, a method a string")
        if method is None:
            self._own_requests.pop(id, None)
            return _normalized_response(message)
        params = message.get("params")
        if params is not None and not isinstance(params, dict):
            return await self._send_error(id, INVALID_PARAMS, "params must be an object")
        message["params"] = {name: value for name, value in (params or {}).items() if name != "_meta"}
        return await self._check_request(id, message) if "id" in message else self._check_notification(message)

    def _check_notification(self, message: JsonObject) -> JsonObject | None:
        if message["method"] == "$/cancel_request":
            id = message["params"].get("requestId")
            if isinstance(id, str | int | float) and id in self._open_requests:
                self.on_request_cancelled(id)
        is_valid = message["method"] == "session/cancel" and isinstance(message["params"].get("sessionId"), str)
        return message if is_valid else None

    async def _check_request(self, id: RequestId, message: JsonObject) -> JsonObject | None:
        method, params = message["method"], message["params"]
        if self._is_initialized == (method == "initialize"):
            problem = "was received already" if self._is_initialized else "must come first"
            return await self._send_error(id, INVALID_REQUEST, f"'initialize' {problem}")
        if id in self._open_requests:
            return await self._send_error(None, INVALID_REQUEST, "a request with this id has no response yet")
        self._is_initialized = True  # an editor need not wait for the response; reset if that is an error
        self._open_requests[id] = method
        if method in UNROUTED_METHODS:
            message["method"] = f"_{method}"
        if method in METHODS_WITH_MCP_SERVERS:
            params.setdefault("mcpServers", [])
        if method in METHODS_WITH_REQUEST_ID:
            params["_meta"] = {"request_id": id}
        return message

    async def _send_error(self, id: RequestId, code: int, text: str) -> None:
        await self._write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def _write(self, message: JsonObject) -> None:
        await self._stream.write_line(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    def _on_response(self, message: JsonObject) -> None:
        method = self._open_requests.pop(message["id"], None)
        if method == "initialize" and "error" in message:
            self._is_initialized = False
        if method:
            self.on_response_sent(message["id"])
        if not self._open_requests:
            self._all_answered.set()

    async def _wait_until_answered(self) -> None:
        if self._open_requests:
            self._all_answered.clear()
            with suppress(TimeoutError):  # the history has the answers so far
                await asyncio.wait_for(self._all_answered.wait(), DRAIN_SECONDS)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _normalized_response(message: JsonObject) -> JsonObject | None:
    """A response that the SDK can process; an invalid error becomes a valid one."""
    if isinstance(message.get("id"), str):
        return None  # our own ids are numbers
    if "result" not in message and not isinstance(message.get("error"), dict):
        message["error"] = {"code": INTERNAL_ERROR, "message": "a response without a result"}
    return message


def _clean_error(message: JsonObject) -> None:
    """Reduce an error to what concerns the editor: no input echoed, no null, one line."""
    error = message.get("error")
    if error is None:
        return
    data = error.pop("data", None)
    if isinstance(data, dict):
        data = cast("JsonObject", data)
        if isinstance(errors := data.get("errors"), list):
            data["errors"] = [{"where": list(e["loc"]), "what": e["msg"]} for e in cast("list[JsonObject]", errors)]
        if "details" in data:
            data["details"] = (str(data["details"]).strip() or "no details").splitlines()[0]
        error["data"] = data
