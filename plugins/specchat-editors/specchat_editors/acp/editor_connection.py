"""JSON-RPC 2.0 between the editor and the agent, one message on each line, with requests in both directions.

Of the SDK only the schema of what an editor sends is used. Its connection (version 0.12) fails on a JSON line that is
not an object, does not answer invalid JSON, has no size limit, serves requests before `initialize`, and tells a handler
neither when its request is cancelled nor when the response was sent. Knows no method but `initialize` and the two that
cancel.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from acp import RequestError
from pydantic import ValidationError

from specchat.errors import SpecchatError, UsageError
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    JsonObject,
    LineReader,
    RpcError,
    parse_object,
)
from specchat_editors.stdio import StdinReader, StdoutWriter

log = logging.getLogger(__name__)

RequestId = str | int | float | None
DRAIN_SECONDS = 1.5  # for open requests, after the editor disconnected


@dataclass(eq=False)
class Call:
    """A message of the editor. The handler of a request may say what follows."""

    method: str
    params: JsonObject
    on_cancel: Callable[[], None] = lambda: None
    on_sent: Callable[[], None] = lambda: None  # the response

    def cancel(self) -> None:
        self.on_cancel()


Handler = Callable[[Call], Awaitable[JsonObject]]


@dataclass(frozen=True)
class OwnRequest:
    session: str  # "" for one that is cancelled
    answer: asyncio.Future[Any]


class EditorConnection:
    """Serves the editor at these descriptors."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._reader, self._writer, self._lines = StdinReader(incoming), StdoutWriter(outgoing, self.stop), LineReader()
        self._is_stopped = self._is_closed = self._is_initialized = False
        self._handlers: Mapping[str, Handler] = {}
        self._calls: dict[RequestId, Call] = {}  # requests without a response
        self._own_requests: dict[RequestId, OwnRequest] = {}
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Serve until the editor disconnects, or `stop`; then cancel and answer the open requests."""
        self._handlers, chunk = handlers, b"\n"
        while chunk and not self._is_stopped:
            chunk = await self._reader.read_chunk()
            for line in self._lines.feed(chunk or b"\n"):  # the last line may have no newline
                if line != b"" and not self._is_stopped:
                    await self._receive(line)
        for call in list(self._calls.values()):
            call.cancel()
        with suppress(TimeoutError):  # the history has the answers so far
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._calls:
                    await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        self._is_closed = True
        for own in self._own_requests.values():
            if not own.answer.done():
                own.answer.set_exception(ConnectionError("the editor has disconnected"))
        self.stop()

    def stop(self) -> None:
        self._is_stopped = True
        self._reader.stop()
        self._writer.stop()

    async def flush(self, seconds: float) -> None:
        await self._writer.flush(seconds)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def notify(self, method: str, params: JsonObject) -> None:
        await self._write(method=method, params=params)

    async def request(self, method: str, params: JsonObject) -> Any:
        """What the editor answers; RequestError for an error."""
        self._last_id += 1
        id, answer = self._last_id, asyncio.get_running_loop().create_future()
        self._own_requests[id] = OwnRequest(params["sessionId"], answer)
        try:
            await self._write(id=id, method=method, params=params)
            return await answer
        finally:
            del self._own_requests[id]

    async def cancel_requests(self, session: str) -> None:
        """Tell the editor that it need not answer our requests for this session."""
        for id in [id for id, own in self._own_requests.items() if own.session == session]:
            self._own_requests[id] = replace(self._own_requests[id], session="")
            await self._write(method="$/cancel_request", params={"requestId": id})

    async def _receive(self, line: bytes | None) -> None:
        message = parse_object(line, is_strict=True)
        if isinstance(message, RpcError):
            return await self._write_error(None, message.code, message.message)
        id, method, params = message.get("id"), message.get("method"), message.get("params")
        is_message = message.get("jsonrpc") == "2.0" and isinstance(method, str | None)
        if not is_message or isinstance(id, bool | list | dict) or not {"id", "method"} & message.keys():
            return await self._write_error(
                None, INVALID_REQUEST, "a line must hold one JSON-RPC 2.0 message; no batches"
            )
        if method is None:
            return self._on_answer(id, message)
        if not isinstance(params, dict | None):
            return await self._write_error(id, INVALID_PARAMS, "params must be an object")
        call = Call(method, params or {})
        return await self._on_request(id, call) if "id" in message else self._on_notification(call)

    def _on_answer(self, id: RequestId, message: JsonObject) -> None:
        own, error = self._own_requests.get(id), message.get("error")
        if own is None or own.answer.done():
            return
        if "result" in message:
            own.answer.set_result(message["result"])
        else:
            text = error.get("message") if isinstance(error, dict) else "a response without a result"
            own.answer.set_exception(RequestError(INTERNAL_ERROR, str(text)))

    def _on_notification(self, call: Call) -> None:
        if call.method == "$/cancel_request":
            id = call.params.get("requestId")
            if isinstance(id, str | int | float) and id in self._calls:
                asyncio.get_running_loop().call_soon(self._calls[id].cancel)  # its task may not have begun
        elif call.method == "session/cancel":
            self.start_task(self._cancel(call))

    async def _cancel(self, call: Call) -> None:
        with suppress(ValidationError, ConnectionError):
            await self._handlers[call.method](call)

    async def _on_request(self, id: RequestId, call: Call) -> None:
        if self._is_initialized == (call.method == "initialize"):
            problem = "was received already" if self._is_initialized else "must come first"
            await self._write_error(id, INVALID_REQUEST, f"'initialize' {problem}")
        elif id in self._calls:
            await self._write_error(None, INVALID_REQUEST, "a request with this id has no response yet")
        else:
            self._is_initialized = True  # an editor need not wait for the response; reset if that is an error
            self._calls[id] = call
            self.start_task(self._answer(id, call))

    async def _answer(self, id: RequestId, call: Call) -> None:
        try:
            if call.method not in self._handlers:
                raise RequestError.method_not_found(call.method)
            await self._write(id=id, result=await self._handlers[call.method](call))
        except Exception as error:  # noqa: BLE001 - the edge: no request may end the agent
            self._is_initialized = self._is_initialized and call.method != "initialize"
            with suppress(ConnectionError):
                await self._write(id=id, error=_error_object(error))
        del self._calls[id]
        call.on_sent()

    async def _write_error(self, id: RequestId, code: int, text: str) -> None:
        await self._write(id=id, error={"code": code, "message": text})

    async def _write(self, **message: Any) -> None:
        """Queue a message; waits while too many bytes are queued. ConnectionError after the end."""
        if self._is_closed:
            raise ConnectionError("the editor has disconnected")
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii") + b"\n")
        await self._writer.drain()


def _error_object(error: Exception) -> JsonObject:
    """An error as the editor sees it: only what concerns it, no input echoed, one line."""
    match error:
        case ValidationError():
            wrong = [{"where": list(each["loc"]), "what": each["msg"]} for each in error.errors()]
            shown = RequestError.invalid_params({"errors": wrong})
        case RequestError():
            shown = error
        case UsageError():
            shown = RequestError.invalid_params({"details": str(error)})
        case _:
            shown = RequestError.internal_error({"details": (str(error).strip() or "no details").splitlines()[0]})
            if not isinstance(error, SpecchatError | ConnectionError):
                log.error("a request failed", exc_info=error)
    return {name: value for name, value in shown.to_error_obj().items() if value is not None}
