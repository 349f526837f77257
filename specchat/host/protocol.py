"""What goes over the wire: bytes in, messages out; messages in, lines out. No I/O, no torch, no files.

JSON-RPC 2.0, one object a line, UTF-8, written as ASCII so that no odd character can split a line. Whatever
arrives, reading never fails: a line that cannot be understood becomes a `Refusal` for the sender. Unknown
fields are ignored, so that both sides may grow.

    client -> host   Call {id, method, params}              a call without id is not answered
    host -> client   Answer {id, result} | Refusal {id, code, text}
    host -> client   Notice {method, params}                an event of a turn; method names it
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from specchat import errors
from specchat.chat.answer_format import AnswerFormat
from specchat.chat.events import (
    CommittedToken,
    Event,
    Failed,
    Finished,
    LoadingProgress,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Totals,
)
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Attachment, Request

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 32 * 2**20

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REQUEST_FAILED = -32000  # the host understood and will not; `error.data` says which of our errors it is

RequestId = int | str | None
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class RpcRequest:
    """Somebody wants something done; `id` is None when no answer is wanted."""

    id: RequestId
    method: str
    params: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class RpcNotification:
    """Something happened in a session."""

    method: str
    params: JsonObject


@dataclass(frozen=True)
class RpcResponse:
    """What a call brought."""

    id: RequestId
    result: JsonObject


@dataclass(frozen=True)
class RpcError:
    """Why a call, or a line that is no call, came to nothing."""

    id: RequestId
    code: int
    message: str
    error_class: str = ""  # the class of errors.py behind it

    def to_exception(self) -> errors.SpecchatError:
        """The error of errors.py that the host met, to be raised on this side."""
        kind = getattr(errors, self.error_class, errors.HostError)
        is_ours = isinstance(kind, type) and issubclass(kind, errors.SpecchatError)
        return (kind if is_ours else errors.HostError)(self.message)


RpcMessage = RpcRequest | RpcNotification | RpcResponse | RpcError


def new_id() -> str:
    """A name for a session or a turn that nobody else draws; later ones sort later."""
    return f"{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def encode(message: RpcMessage) -> bytes:
    """One line."""
    match message:
        case RpcRequest(id=None, method=method, params=params) | RpcNotification(method=method, params=params):
            body = {"method": method, "params": params}
        case RpcRequest(id=id, method=method, params=params):
            body = {"id": id, "method": method, "params": params}
        case RpcResponse(id=id, result=result):
            body = {"id": id, "result": result}
        case RpcError(id=id, code=code, message=text, error_class=kind):
            error: JsonObject = {"code": code, "message": text}
            if kind:
                error["data"] = {"kind": kind}
            body = {"id": id, "error": error}
    return json.dumps({"jsonrpc": "2.0", **body}, separators=(",", ":")).encode("ascii") + b"\n"


class LineReader:
    """Bytes as they come, lines as they are whole; a line over the limit is swallowed and reported as None."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.limit = limit
        self._pending = bytearray()
        self._searched = 0
        self._is_skipping = False

    def feed(self, received: bytes) -> Iterator[bytes | None]:
        """Every line that these bytes complete, without its end."""
        self._pending += received
        while (end := self._pending.find(b"\n", self._searched)) >= 0:
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            self._searched = 0
            is_whole = not self._is_skipping and len(line) <= self.limit
            self._is_skipping = False
            yield line.strip() if is_whole else None
        self._searched = len(self._pending)
        if len(self._pending) > self.limit:
            self._is_skipping = True
            self._pending.clear()
            self._searched = 0


def decode_requests(lines: Iterator[bytes | None]) -> Iterator[RpcRequest | RpcError]:
    """The host's side: calls, and for every other line the refusal that its sender shall get."""
    for line in lines:
        if line == b"":
            continue
        body = _parse(line)
        yield body if isinstance(body, RpcError) else _to_request(body)


def decode_host_messages(lines: Iterator[bytes | None]) -> Iterator[RpcNotification | RpcResponse | RpcError]:
    """The client's side: notices, answers and refusals; anything else is ignored."""
    for line in lines:
        body = _parse(line)
        if isinstance(body, RpcError):
            continue
        if isinstance(body.get("method"), str) and isinstance(body.get("params"), dict):
            yield RpcNotification(body["method"], body["params"])
        elif isinstance(body.get("result"), dict):
            yield RpcResponse(body.get("id"), body["result"])
        elif isinstance(error := body.get("error"), dict):
            details = error.get("data")
            kind = details.get("kind", "") if isinstance(details, dict) else ""
            yield RpcError(body.get("id"), error.get("code", REQUEST_FAILED), str(error.get("message", "")), str(kind))


def _parse(line: bytes | None) -> JsonObject | RpcError:
    if line is None:
        return RpcError(None, INVALID_REQUEST, f"a line may hold at most {MAX_LINE_BYTES} bytes")
    try:
        body = json.loads(line.decode("utf-8"))
        if rb"\ud" in line.lower():
            json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return RpcError(None, PARSE_ERROR, "this line is not JSON")
    if not isinstance(body, dict):
        return RpcError(None, INVALID_REQUEST, "a line must hold one JSON object; batches are not supported")
    return body


def _to_request(body: JsonObject) -> RpcRequest | RpcError:
    id = body.get("id")
    if isinstance(id, bool) or not isinstance(id, int | str | None):
        return RpcError(None, INVALID_REQUEST, "an id must be a string or a whole number")
    if body.get("jsonrpc") != "2.0" or not isinstance(body.get("method"), str):
        return RpcError(id, INVALID_REQUEST, 'a call needs jsonrpc "2.0" and a method')
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        return RpcError(id, INVALID_PARAMS, "params must be an object")
    return RpcRequest(id, body["method"], params or {})


SIMPLE_EVENTS = {
    "loading": LoadingProgress,
    "prefill": PrefillProgress,
    "routed": Routed,
    "text": TextDelta,
    "failed": Failed,
}
EVENT_METHODS = {kind: name for name, kind in SIMPLE_EVENTS.items()} | {StepDone: "steps", Finished: "finished"}


def event_to_json(event: Event) -> JsonObject:
    """The params that carry an event; a StepDone travels as a batch of one."""
    match event:
        case StepDone():
            return {"steps": [_step_to_json(event)]}
        case Finished(finish_reason=reason, totals=totals):
            return {"reason": reason, "totals": asdict(totals)}
        case _:
            return asdict(event)


def events_from_json(method: str, params: JsonObject) -> list[Event]:
    """What a notice says: one event, several for a batch of steps, none when it is no event."""
    if method == "steps":
        return [_step_from_json(step) for step in params.get("steps", ())]
    if method == "finished":
        return [Finished(params["reason"], totals_from_json(params["totals"]))]
    if method in SIMPLE_EVENTS:
        return [from_known_fields(SIMPLE_EVENTS[method], params)]
    return []


def _step_to_json(step: StepDone) -> JsonObject:
    return {
        "drafted": step.draft_tokens,
        "parents": step.parents,
        "committed": [
            [token.token_id, token.token_bytes.decode("latin-1"), token.source] for token in step.committed_tokens
        ],
        "draft_seconds": step.draft_seconds,
        "verify_seconds": step.verify_seconds,
        "words": [word.decode("latin-1") for word in step.draft_token_bytes],
        "sources": step.draft_sources,
    }


def _step_from_json(step: JsonObject) -> StepDone:
    return StepDone(
        draft_tokens=tuple(step["drafted"]),
        parents=tuple(step["parents"]),
        committed_tokens=tuple(
            CommittedToken(id, text.encode("latin-1"), source) for id, text, source in step["committed"]
        ),
        draft_seconds=step["draft_seconds"],
        verify_seconds=step["verify_seconds"],
        draft_token_bytes=tuple(word.encode("latin-1") for word in step.get("words", ())),
        draft_sources=tuple(step.get("sources", ())),
    )


def totals_from_json(params: JsonObject) -> Totals:
    """Totals, without the fields that a newer host may add."""
    return from_known_fields(Totals, params)


def request_to_json(request: Request) -> JsonObject:
    """A request as params; the form of its answer by the name of its kind."""
    form = request.answer_format
    return asdict(replace(request, structure=None)) | ({form.kind: form.value} if form else {})


def request_from_json(params: JsonObject) -> Request:
    """A request, checked: UsageError when it is none."""
    wrong = [name for name, kinds in REQUEST_FIELD_TYPES.items() if not isinstance(params.get(name), kinds)]
    if wrong or not all(isinstance(stop, str) for stop in params.get("stop") or ()):
        raise errors.UsageError(
            f"a request needs a text, and its {wrong[0] if wrong else 'stop'} is not what it should be"
        )
    files = [file for file in params.get("files") or () if isinstance(file, dict)]
    try:
        attached = tuple(Attachment(str(file["name"]), str(file["text"])) for file in files)
    except KeyError as missing:
        raise errors.UsageError(f"every file of a request needs a {missing}") from None
    known = {"files": attached, "stop": tuple(params.get("stop") or ())}
    known |= {name: params.get(name) or "" for name in ("task", "rewrites")}
    known["structure"] = AnswerFormat.from_options(params)
    return from_known_fields(Request, {**params, **known})


REQUEST_FIELD_TYPES: dict[str, Any] = {
    "text": str,
    "files": list | tuple | None,
    "stop": list | tuple | None,
    "max_tokens": int | None,
    "seed": int | None,
    "temperature": int | float | None,
    "variant": str | None,
    "task": str | None,
    "rewrites": str | None,
}


def fim_request_from_json(params: JsonObject) -> FimRequest:
    """A gap, checked: UsageError when it is none."""
    kinds: dict[str, Any] = {
        "prefix": str,
        "suffix": str,
        "max_tokens": int,
        "context": int,
        "lines": int,
        "seconds": int | float,
    }
    given = {name: params[name] for name in kinds if params.get(name) is not None}
    wrong = [name for name, value in given.items() if not isinstance(value, kinds[name])]
    if wrong or "prefix" not in given:
        raise errors.UsageError(f"a gap needs a prefix; its {wrong[0] if wrong else 'prefix'} is not what it should be")
    return FimRequest(**given)


def from_known_fields(dataclass_type: Any, params: JsonObject) -> Any:
    """A value of this dataclass from the params it knows."""
    names = {each.name for each in fields(dataclass_type)}
    return dataclass_type(**{name: value for name, value in params.items() if name in names})
