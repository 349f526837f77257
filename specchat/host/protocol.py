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
from specchat.chat.answer_format import Structure
from specchat.chat.events import (
    Committed,
    Event,
    Failed,
    Finished,
    Loading,
    Prefill,
    Routed,
    StepDone,
    Text,
    Totals,
)
from specchat.chat.fim_request import Gap
from specchat.chat.request import Attachment, Request

PROTOCOL = 1
LINE_BYTES = 32 * 2**20

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000  # the host understood and will not; `error.data` says which of our errors it is

Id = int | str | None
Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """Somebody wants something done; `id` is None when no answer is wanted."""

    id: Id
    method: str
    params: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Notice:
    """Something happened in a session."""

    method: str
    params: Json


@dataclass(frozen=True)
class Answer:
    """What a call brought."""

    id: Id
    result: Json


@dataclass(frozen=True)
class Refusal:
    """Why a call, or a line that is no call, came to nothing."""

    id: Id
    code: int
    text: str
    kind: str = ""  # the class of errors.py behind it

    def to_error(self) -> errors.SpecchatError:
        """The error of errors.py that the host met, to be raised on this side."""
        kind = getattr(errors, self.kind, errors.HostError)
        is_ours = isinstance(kind, type) and issubclass(kind, errors.SpecchatError)
        return (kind if is_ours else errors.HostError)(self.text)


Message = Call | Notice | Answer | Refusal


def new_id() -> str:
    """A name for a session or a turn that nobody else draws; later ones sort later."""
    return f"{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def encode(message: Message) -> bytes:
    """One line."""
    match message:
        case Call(id=None, method=method, params=params) | Notice(method=method, params=params):
            body = {"method": method, "params": params}
        case Call(id=id, method=method, params=params):
            body = {"id": id, "method": method, "params": params}
        case Answer(id=id, result=result):
            body = {"id": id, "result": result}
        case Refusal(id=id, code=code, text=text, kind=kind):
            error: Json = {"code": code, "message": text}
            if kind:
                error["data"] = {"kind": kind}
            body = {"id": id, "error": error}
    return json.dumps({"jsonrpc": "2.0", **body}, separators=(",", ":")).encode("ascii") + b"\n"


class LineReader:
    """Bytes as they come, lines as they are whole; a line over the limit is swallowed and reported as None."""

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self.limit = limit
        self._pending = bytearray()
        self._searched = 0
        self._is_swallowing = False

    def feed(self, received: bytes) -> Iterator[bytes | None]:
        """Every line that these bytes complete, without its end."""
        self._pending += received
        while (end := self._pending.find(b"\n", self._searched)) >= 0:
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            self._searched = 0
            is_whole = not self._is_swallowing and len(line) <= self.limit
            self._is_swallowing = False
            yield line.strip() if is_whole else None
        self._searched = len(self._pending)
        if len(self._pending) > self.limit:
            self._is_swallowing = True
            self._pending.clear()
            self._searched = 0


def read_calls(lines: Iterator[bytes | None]) -> Iterator[Call | Refusal]:
    """The host's side: calls, and for every other line the refusal that its sender shall get."""
    for line in lines:
        if line == b"":
            continue
        body = _parse(line)
        yield body if isinstance(body, Refusal) else _to_call(body)


def read_replies(lines: Iterator[bytes | None]) -> Iterator[Notice | Answer | Refusal]:
    """The client's side: notices, answers and refusals; anything else is ignored."""
    for line in lines:
        body = _parse(line)
        if isinstance(body, Refusal):
            continue
        if isinstance(body.get("method"), str) and isinstance(body.get("params"), dict):
            yield Notice(body["method"], body["params"])
        elif isinstance(body.get("result"), dict):
            yield Answer(body.get("id"), body["result"])
        elif isinstance(error := body.get("error"), dict):
            details = error.get("data")
            kind = details.get("kind", "") if isinstance(details, dict) else ""
            yield Refusal(body.get("id"), error.get("code", REFUSED), str(error.get("message", "")), str(kind))


def _parse(line: bytes | None) -> Json | Refusal:
    if line is None:
        return Refusal(None, INVALID_REQUEST, f"a line may hold at most {LINE_BYTES} bytes")
    try:
        body = json.loads(line.decode("utf-8"))
        if rb"\ud" in line.lower():
            json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return Refusal(None, PARSE_ERROR, "this line is not JSON")
    if not isinstance(body, dict):
        return Refusal(None, INVALID_REQUEST, "a line must hold one JSON object; batches are not supported")
    return body


def _to_call(body: Json) -> Call | Refusal:
    id = body.get("id")
    if isinstance(id, bool) or not isinstance(id, int | str | None):
        return Refusal(None, INVALID_REQUEST, "an id must be a string or a whole number")
    if body.get("jsonrpc") != "2.0" or not isinstance(body.get("method"), str):
        return Refusal(id, INVALID_REQUEST, 'a call needs jsonrpc "2.0" and a method')
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        return Refusal(id, INVALID_PARAMS, "params must be an object")
    return Call(id, body["method"], params or {})


SIMPLE_EVENTS = {"loading": Loading, "prefill": Prefill, "routed": Routed, "text": Text, "failed": Failed}
NAMES = {kind: name for name, kind in SIMPLE_EVENTS.items()} | {StepDone: "steps", Finished: "finished"}


def event_to_json(event: Event) -> Json:
    """The params that carry an event; a StepDone travels as a batch of one."""
    match event:
        case StepDone():
            return {"steps": [_step_to_json(event)]}
        case Finished(reason=reason, totals=totals):
            return {"reason": reason, "totals": asdict(totals)}
        case _:
            return asdict(event)


def events_from_json(method: str, params: Json) -> list[Event]:
    """What a notice says: one event, several for a batch of steps, none when it is no event."""
    if method == "steps":
        return [_step_from_json(step) for step in params.get("steps", ())]
    if method == "finished":
        return [Finished(params["reason"], totals_from_json(params["totals"]))]
    if method in SIMPLE_EVENTS:
        return [known_fields(SIMPLE_EVENTS[method], params)]
    return []


def _step_to_json(step: StepDone) -> Json:
    return {
        "drafted": step.drafted,
        "parents": step.parents,
        "committed": [[token.id, token.bytes.decode("latin-1"), token.source] for token in step.committed],
        "draft_seconds": step.draft_seconds,
        "verify_seconds": step.verify_seconds,
        "words": [word.decode("latin-1") for word in step.words],
        "sources": step.sources,
    }


def _step_from_json(step: Json) -> StepDone:
    return StepDone(
        drafted=tuple(step["drafted"]),
        parents=tuple(step["parents"]),
        committed=tuple(Committed(id, text.encode("latin-1"), source) for id, text, source in step["committed"]),
        draft_seconds=step["draft_seconds"],
        verify_seconds=step["verify_seconds"],
        words=tuple(word.encode("latin-1") for word in step.get("words", ())),
        sources=tuple(step.get("sources", ())),
    )


def totals_from_json(params: Json) -> Totals:
    """Totals, without the fields that a newer host may add."""
    return known_fields(Totals, params)


def request_to_json(request: Request) -> Json:
    """A request as params; the form of its answer by the name of its kind."""
    form = request.structure
    return asdict(replace(request, structure=None)) | ({form.kind: form.value} if form else {})


def request_from_json(params: Json) -> Request:
    """A request, checked: UsageError when it is none."""
    wrong = [name for name, kinds in REQUEST_KINDS.items() if not isinstance(params.get(name), kinds)]
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
    known["structure"] = Structure.among(params)
    return known_fields(Request, {**params, **known})


REQUEST_KINDS: dict[str, Any] = {
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


def gap_from_json(params: Json) -> Gap:
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
    return Gap(**given)


def known_fields(kind: Any, params: Json) -> Any:
    """A value of this dataclass from the params it knows."""
    names = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in params.items() if name in names})
