"""The wire format between client and host: bytes to messages, and messages to bytes. No I/O, no torch, no files.

JSON-RPC 2.0, one object per line, in UTF-8; the encoder writes ASCII only, so that no Unicode line separator can split
a line. Decoding never raises: an invalid line becomes an `RpcError` for its sender. Both sides ignore unknown fields.

    client -> host   RpcRequest {id, method, params}        a request without an id gets no response
    host -> client   RpcResponse {id, result} | RpcError {id, code, message}
    host -> client   RpcNotification {method, params}       an event of a turn or a completion; the method names it
"""

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from specchat import errors
from specchat.chat.events import (
    Event,
    Failed,
    Finished,
    LoadingProgress,
    Notice,
    PrefillProgress,
    PromptTokens,
    Routed,
    StepDone,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Totals,
    Waiting,
)
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.tools import ANY_TOOL
from specchat.chat.transcript import Turn
from specchat.host.wire_values import JsonObject, from_json, to_json

MAX_LINE_BYTES = 32 * 2**20

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REQUEST_FAILED = -32000  # a SpecchatError; `error.data` names its class

RequestId = int | str | None


@dataclass(frozen=True)
class RpcRequest:
    """A request from a client; `id` is None when the client expects no response."""

    id: RequestId
    method: str
    params: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class RpcNotification:
    method: str
    params: JsonObject


@dataclass(frozen=True)
class RpcResponse:
    id: RequestId
    result: JsonObject


@dataclass(frozen=True)
class RpcError:
    """The failure of a request, or of a line that is not a request."""

    id: RequestId
    code: int
    message: str
    error_class: str = ""  # the name of a class in errors.py

    def to_exception(self) -> errors.SpecchatError:
        error_class = getattr(errors, self.error_class, errors.HostError)
        is_known = isinstance(error_class, type) and issubclass(error_class, errors.SpecchatError)
        return (error_class if is_known else errors.HostError)(self.message)


RpcMessage = RpcRequest | RpcNotification | RpcResponse | RpcError


def new_id() -> str:
    """A unique id for a session or a turn. Ids sort by time."""
    return f"{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def encode(message: RpcMessage) -> bytes:
    match message:
        case RpcRequest(id=None, method=method, params=params) | RpcNotification(method=method, params=params):
            body = {"method": method, "params": params}
        case RpcRequest(id=id, method=method, params=params):
            body = {"id": id, "method": method, "params": params}
        case RpcResponse(id=id, result=result):
            body = {"id": id, "result": result}
        case RpcError(id=id, code=code, message=text, error_class=error_class):
            error: JsonObject = {"code": code, "message": text}
            if error_class:
                error["data"] = {"error_class": error_class}
            body = {"id": id, "error": error}
    return json.dumps({"jsonrpc": "2.0", **body}, separators=(",", ":")).encode("ascii") + b"\n"


class LineReader:
    """Splits received bytes into lines. Skips a line over the limit and reports it as None."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.limit = limit
        self._pending = bytearray()
        self._searched = 0
        self._is_skipping = False

    def feed(self, received: bytes) -> Iterator[bytes | None]:
        self._pending += received
        while (end := self._pending.find(b"\n", self._searched)) >= 0:
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            self._searched = 0
            is_complete = not self._is_skipping and len(line) <= self.limit
            self._is_skipping = False
            yield line.strip() if is_complete else None
        self._searched = len(self._pending)
        if len(self._pending) > self.limit:
            self._is_skipping = True
            self._pending.clear()
            self._searched = 0


def decode_requests(lines: Iterator[bytes | None]) -> Iterator[RpcRequest | RpcError]:
    """The messages on the host's side: requests, and an error response for every other line."""
    for line in lines:
        if line == b"":
            continue
        body = parse_object(line)
        yield body if isinstance(body, RpcError) else _to_request(body)


def decode_host_messages(lines: Iterator[bytes | None]) -> Iterator[RpcNotification | RpcResponse | RpcError]:
    """The messages on the client's side; an error for a line that cannot be read. Other objects are ignored."""
    for line in lines:
        body = parse_object(line)
        if isinstance(body, RpcError):
            yield RpcError(None, body.code, f"the engine process sent what cannot be read: {body.message}")
        elif isinstance(body.get("method"), str) and isinstance(body.get("params"), dict):
            yield RpcNotification(body["method"], body["params"])
        elif isinstance(body.get("result"), dict):
            yield RpcResponse(body.get("id"), body["result"])
        elif isinstance(error := body.get("error"), dict):
            details = error.get("data")
            error_class = str(details.get("error_class", "")) if isinstance(details, dict) else ""
            message = str(error.get("message", ""))
            yield RpcError(body.get("id"), error.get("code", REQUEST_FAILED), message, error_class)


def parse_object(line: bytes | None, *, is_strict: bool = False) -> JsonObject | RpcError:
    """The JSON object of a line. `is_strict`: NaN is no number."""
    if line is None:
        return RpcError(None, INVALID_REQUEST, f"a line must not exceed {MAX_LINE_BYTES} bytes")
    try:
        body = json.loads(line.decode("utf-8-sig"), parse_constant=_reject_constant if is_strict else None)
        if rb"\ud" in line.lower():
            json.dumps(body, ensure_ascii=False).encode()  # rejects lone surrogates
    except (ValueError, RecursionError):
        return RpcError(None, PARSE_ERROR, "the line is not JSON")
    except MemoryError:
        return RpcError(None, INTERNAL_ERROR, "there is no memory to read the line")
    if not isinstance(body, dict):
        return RpcError(None, INVALID_REQUEST, "a line must contain one JSON object; batches are not supported")
    return body


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _to_request(body: JsonObject) -> RpcRequest | RpcError:
    id = body.get("id")
    if isinstance(id, bool) or not isinstance(id, int | str | None):
        return RpcError(None, INVALID_REQUEST, "an id must be a string or an integer")
    if body.get("jsonrpc") != "2.0" or not isinstance(body.get("method"), str):
        return RpcError(id, INVALID_REQUEST, 'a request needs jsonrpc "2.0" and a method')
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        return RpcError(id, INVALID_PARAMS, "params must be an object")
    return RpcRequest(id, body["method"], params or {})


EVENTS: dict[str, type[Event]] = {
    "waiting": Waiting,
    "loading": LoadingProgress,
    "notice": Notice,
    "prefill": PrefillProgress,
    "prompt_tokens": PromptTokens,
    "routed": Routed,
    "text_delta": TextDelta,
    "thinking_delta": ThinkingDelta,
    "tool_call_delta": ToolCallDelta,
    "steps": StepDone,
    "finished": Finished,
    "failed": Failed,
}
EVENT_METHODS = {kind: name for name, kind in EVENTS.items()}


def event_to_json(event: Event) -> JsonObject:
    """The params of an event; a StepDone becomes a list of one step."""
    return {"steps": [to_json(event)]} if isinstance(event, StepDone) else to_json(event)


def events_from_json(method: str, params: JsonObject) -> list[Event]:
    """The events of a notification: several for a list of steps, none for an unknown method."""
    if method not in EVENTS:
        return []
    return [from_json(EVENTS[method], each) for each in (params["steps"] if method == "steps" else [params])]


def totals_from_json(params: JsonObject) -> Totals:
    """Totals from JSON, without unknown fields, and without numbers that cannot be."""
    impossible = impossible_numbers(params)
    return from_json(Totals, {name: value for name, value in params.items() if name not in impossible})


def impossible_numbers(params: JsonObject) -> tuple[str, ...]:
    """The names of those that are no number, endless, or negative, as after a jump of a clock."""
    numbers = {each.name for each in fields(Totals) if each.type in ("int", "float")}
    return tuple(
        name
        for name in numbers & params.keys()
        if not isinstance(value := params[name], int | float) or not 0 <= value < float("inf")
    )


def request_to_json(request: Request) -> JsonObject:
    """A request as params. The answer format becomes a key of its kind (schema, regex or choices)."""
    answer_format, params = request.answer_format, to_json(request)
    del params["answer_format"], params["answer_tool"]
    for name in ("wants_probabilities", "only_renders", "logit_bias", "tools", "tool_results", "compacts"):
        if not params[name]:
            del params[name]
    if request.tool_choice == ANY_TOOL:
        del params["tool_choice"]
    return params | ({answer_format.kind: answer_format.value} if answer_format else {})


def request_from_json(params: JsonObject) -> Request:
    """A request from params; UsageError when they are not valid."""
    request = from_json(Request, {**params, "answer_format": None, "answer_tool": None})
    answer_format = AnswerFormat.from_options(params)
    return replace(request, answer_format=answer_format) if answer_format else request


TURN_FIELDS = ("user", "answer", "files", "task", "thinking", "tool_results", "tool_calls")


def turn_to_json(turn: Turn) -> JsonObject:
    """The text of a turn, without what an engine computed for it."""
    return {name: to_json(getattr(turn, name)) for name in TURN_FIELDS}


def turn_from_json(params: JsonObject) -> Turn:
    """A question and its answer from the fields of `turn_to_json`."""
    turn = from_json(Turn, {name: params.get(name) for name in TURN_FIELDS} if isinstance(params, dict) else params)
    Request(turn.user, tool_results=turn.tool_results)  # raises for a question that no request could have
    return replace(turn, is_finished=True)
