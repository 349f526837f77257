"""Messages between the pipe and the SDK: what the SDK must never see ends here, with the answer that it deserves.

Version 0.12 of the SDK dies on a line that is JSON and no object, does not answer one that is no JSON, knows no limit,
serves requests before `initialize`, routes neither `session/delete` nor `logout` nor `$/cancel_request`, demands the
`mcpServers` that editors leave out, and lets `_meta` replace the arguments of its handlers. This last trap has a use:
the guard puts the id of a request there, so that a handler can be told when its answer has gone out.

Knows the envelope of JSON-RPC and no meaning.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import cast

from specchat.editors.acp.stdio import LineStatus, StdioLines
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    PARSE_ERROR,
    JsonObject,
)

RequestId = str | int | float | None
UNROUTED_METHODS = frozenset({"session/delete", "logout"})  # the SDK hands these on as extensions, under another name
METHODS_WITH_REQUEST_ID = frozenset({"session/new", "session/load", "session/resume", "session/prompt"})
METHODS_WITH_MCP_SERVERS = frozenset({"session/new", "session/load"})
DRAIN_SECONDS = 1.5  # for answers, once the editor has gone


def ignore_request_id(_id: RequestId) -> None:
    """The ear of who does not listen."""


class MessageGuard:
    """A transport for the SDK: `send`, `receive` and `close`."""

    def __init__(self, pipe: StdioLines) -> None:
        self._pipe = pipe
        self._is_initialized = False
        self._open_requests: dict[RequestId, str] = {}  # the methods of requests that wait for our answer
        self._own_requests: dict[RequestId, str] = {}  # the sessions of ours that wait for theirs
        self._all_answered = asyncio.Event()
        self.on_response_sent: Callable[[RequestId], None] = ignore_request_id
        self.on_request_cancelled: Callable[[RequestId], None] = ignore_request_id
        self.on_disconnect: Callable[[], None] = lambda: None

    async def send(self, message: JsonObject) -> None:
        """One message to the editor."""
        is_answer = "method" not in message
        if is_answer:
            _clean_error(message)
        elif "id" in message:
            self._own_requests[message["id"]] = str(message["params"].get("sessionId"))
        await self._write(message)
        if is_answer:
            self._on_response(message)

    async def receive(self) -> JsonObject | None:
        """The next message that the SDK can take; None when there will be none, and all that can be answered is."""
        while (line := await self._pipe.read_line()) is not LineStatus.END:
            message = await self._parse_line(line)
            if message is not None:
                return message
        self.on_disconnect()
        await self._wait_until_answered()
        return None

    async def close(self) -> None:
        """Nothing more is read."""
        self._pipe.stop()

    async def cancel_own_requests(self, session: str) -> None:
        """Tell the editor that what we asked it for this session is no longer wanted."""
        for id in [id for id, asker in self._own_requests.items() if asker == session]:
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
                json.dumps(message, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except (ValueError, RecursionError):
            return await self._send_error(None, PARSE_ERROR, "this line is not JSON")
        if not isinstance(message, dict) or cast("JsonObject", message).get("jsonrpc") != "2.0":
            return await self._send_error(None, INVALID_REQUEST, "a line must hold one JSON-RPC 2.0 object; no batches")
        return await self._check_envelope(cast("JsonObject", message))

    async def _check_envelope(self, message: JsonObject) -> JsonObject | None:
        id, method = message.get("id"), message.get("method")
        if isinstance(id, bool | list | dict) or not isinstance(method, str | None):
            return await self._send_error(
                None, INVALID_REQUEST, "an id is a string or a number, and a method is a string"
            )
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
        is_known = message["method"] == "session/cancel" and isinstance(message["params"].get("sessionId"), str)
        return message if is_known else None

    async def _check_request(self, id: RequestId, message: JsonObject) -> JsonObject | None:
        method, params = message["method"], message["params"]
        if self._is_initialized == (method == "initialize"):
            what = "was said already" if self._is_initialized else "must come first"
            return await self._send_error(id, INVALID_REQUEST, f"'initialize' {what}")
        if id in self._open_requests:
            return await self._send_error(None, INVALID_REQUEST, "a request with this id still waits for its answer")
        self._is_initialized = True  # an editor need not wait for the answer; taken back when it is an error
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
        await self._pipe.write_line(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

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
            try:
                await asyncio.wait_for(self._all_answered.wait(), DRAIN_SECONDS)
            except TimeoutError:
                pass  # whoever reads our history finds what was said so far


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _normalized_response(message: JsonObject) -> JsonObject | None:
    """What the SDK can take as an answer to us; an error that is none becomes one."""
    if isinstance(message.get("id"), str):
        return None  # we ask with numbers
    if "result" not in message and not isinstance(message.get("error"), dict):
        message["error"] = {"code": INTERNAL_ERROR, "message": "an answer without a result"}
    return message


def _clean_error(message: JsonObject) -> None:
    """Of what the SDK says about an error only what concerns the editor: no secrets that it sent, no null, one line."""
    error = message.get("error")
    if error is None:
        return
    said = error.pop("data", None)
    if isinstance(said, dict):
        data = cast("JsonObject", said)
        if isinstance(faults := data.get("errors"), list):
            data["errors"] = [
                {"where": list(fault["loc"]), "what": fault["msg"]} for fault in cast("list[JsonObject]", faults)
            ]
        if "details" in data:
            data["details"] = (str(data["details"]).strip() or "no details").splitlines()[0]
        error["data"] = data
