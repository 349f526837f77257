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

from specchat.editors.acp.stdio import Pipe, Special
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LINE_BYTES,
    PARSE_ERROR,
    Json,
)

Id = str | int | float | None
UNROUTED = frozenset({"session/delete", "logout"})  # the SDK hands these on as extensions, under another name
TOLD_THEIR_ID = frozenset({"session/new", "session/load", "session/resume", "session/prompt"})
WITH_SERVERS = frozenset({"session/new", "session/load"})
LAST_SECONDS = 1.5  # for answers, once the editor has gone


def hear_nothing(_id: Id) -> None:
    """The ear of who does not listen."""


class Guard:
    """A transport for the SDK: `send`, `receive` and `close`."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._is_initialized = False
        self._open: dict[Id, str] = {}  # the methods of requests that wait for our answer
        self._asked: dict[Id, str] = {}  # the sessions of ours that wait for theirs
        self._all_answered = asyncio.Event()
        self.on_answered: Callable[[Id], None] = hear_nothing
        self.on_cancelled: Callable[[Id], None] = hear_nothing
        self.on_end: Callable[[], None] = lambda: None

    async def send(self, message: Json) -> None:
        """One message to the editor."""
        is_answer = "method" not in message
        if is_answer:
            _clean(message)
        elif "id" in message:
            self._asked[message["id"]] = str(message["params"].get("sessionId"))
        await self._write(message)
        if is_answer:
            self._note_answered(message)

    async def receive(self) -> Json | None:
        """The next message that the SDK can take; None when there will be none, and all that can be answered is."""
        while (line := await self._pipe.line()) is not Special.END:
            message = await self._checked(line)
            if message is not None:
                return message
        self.on_end()
        await self._until_answered()
        return None

    async def close(self) -> None:
        """Nothing more is read."""
        self._pipe.stop()

    async def withdraw(self, session: str) -> None:
        """Tell the editor that what we asked it for this session is no longer wanted."""
        for id in [id for id, asker in self._asked.items() if asker == session]:
            del self._asked[id]
            await self.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}})

    async def _checked(self, line: bytes | Special) -> Json | None:
        if isinstance(line, Special):
            return await self._refuse(None, INVALID_REQUEST, f"a line may hold at most {LINE_BYTES} bytes")
        if not line:
            return None
        try:
            message = json.loads(line.decode("utf-8-sig"), parse_constant=_no_number)
            if rb"\ud" in line.lower():
                json.dumps(message, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except (ValueError, RecursionError):
            return await self._refuse(None, PARSE_ERROR, "this line is not JSON")
        if not isinstance(message, dict) or cast("Json", message).get("jsonrpc") != "2.0":
            return await self._refuse(None, INVALID_REQUEST, "a line must hold one JSON-RPC 2.0 object; no batches")
        return await self._sorted(cast("Json", message))

    async def _sorted(self, message: Json) -> Json | None:
        id, method = message.get("id"), message.get("method")
        if isinstance(id, bool | list | dict) or not isinstance(method, str | None):
            return await self._refuse(None, INVALID_REQUEST, "an id is a string or a number, and a method is a string")
        if method is None:
            self._asked.pop(id, None)
            return _usable_answer(message)
        params = message.get("params")
        if params is not None and not isinstance(params, dict):
            return await self._refuse(id, INVALID_PARAMS, "params must be an object")
        message["params"] = {name: value for name, value in (params or {}).items() if name != "_meta"}
        return await self._request(id, message) if "id" in message else self._notification(message)

    def _notification(self, message: Json) -> Json | None:
        if message["method"] == "$/cancel_request":
            id = message["params"].get("requestId")
            if isinstance(id, str | int | float) and id in self._open:
                self.on_cancelled(id)
        is_known = message["method"] == "session/cancel" and isinstance(message["params"].get("sessionId"), str)
        return message if is_known else None

    async def _request(self, id: Id, message: Json) -> Json | None:
        method, params = message["method"], message["params"]
        if self._is_initialized == (method == "initialize"):
            what = "was said already" if self._is_initialized else "must come first"
            return await self._refuse(id, INVALID_REQUEST, f"'initialize' {what}")
        if id in self._open:
            return await self._refuse(None, INVALID_REQUEST, "a request with this id still waits for its answer")
        self._is_initialized = True  # an editor need not wait for the answer; taken back when it is an error
        self._open[id] = method
        if method in UNROUTED:
            message["method"] = f"_{method}"
        if method in WITH_SERVERS:
            params.setdefault("mcpServers", [])
        if method in TOLD_THEIR_ID:
            params["_meta"] = {"request_id": id}
        return message

    async def _refuse(self, id: Id, code: int, text: str) -> None:
        await self._write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def _write(self, message: Json) -> None:
        await self._pipe.send(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    def _note_answered(self, message: Json) -> None:
        method = self._open.pop(message["id"], None)
        if method == "initialize" and "error" in message:
            self._is_initialized = False
        if method:
            self.on_answered(message["id"])
        if not self._open:
            self._all_answered.set()

    async def _until_answered(self) -> None:
        if self._open:
            self._all_answered.clear()
            try:
                await asyncio.wait_for(self._all_answered.wait(), LAST_SECONDS)
            except TimeoutError:
                pass  # whoever reads our history finds what was said so far


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _usable_answer(message: Json) -> Json | None:
    """What the SDK can take as an answer to us; an error that is none becomes one."""
    if isinstance(message.get("id"), str):
        return None  # we ask with numbers
    if "result" not in message and not isinstance(message.get("error"), dict):
        message["error"] = {"code": INTERNAL_ERROR, "message": "an answer without a result"}
    return message


def _clean(message: Json) -> None:
    """Of what the SDK says about an error only what concerns the editor: no secrets that it sent, no null, one line."""
    error = message.get("error")
    if error is None:
        return
    said = error.pop("data", None)
    if isinstance(said, dict):
        data = cast("Json", said)
        if isinstance(faults := data.get("errors"), list):
            data["errors"] = [
                {"where": list(fault["loc"]), "what": fault["msg"]} for fault in cast("list[Json]", faults)
            ]
        if "details" in data:
            data["details"] = (str(data["details"]).strip() or "no details").splitlines()[0]
        error["data"] = data
