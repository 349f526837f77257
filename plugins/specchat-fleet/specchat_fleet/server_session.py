"""A conversation whose answers come from a server, and its engine for the host.

It yields the same events as the local engine, but no steps: a server sends text, and at the end its counts of draft
tokens. Turns have no token ids; a conversation can switch to the local engine and back.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from time import perf_counter
from typing import TYPE_CHECKING, Any

from specchat.acceptance_counts import Acceptance
from specchat.chat.attachments import with_attachments
from specchat.chat.edit_contract import with_edit_contract
from specchat.chat.events import (
    NO_OUTPUT_YET,
    TOOL_CALLS,
    Event,
    Failed,
    Finished,
    Routed,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Totals,
    Waiting,
)
from specchat.chat.request import LARK, SCHEMA, AnswerFormat, Request
from specchat.chat.streamed_calls import StreamedCalls
from specchat.chat.tool_prompt import answered_calls, arguments_of, result_text
from specchat.chat.tools import ANY_TOOL, CALL_OR_ANSWER, TOOL_CHOICES, ToolCall, ToolResult
from specchat.chat.transcript import Question, Turn
from specchat.errors import ModelError, SpecchatError, UsageError
from specchat_fleet.server_client import (
    DEFAULT_TIMEOUTS,
    FALLBACK_HINT,
    CallChunk,
    Overloaded,
    ServerClient,
    ServerTimeouts,
    StreamEnd,
    TextChunk,
    ThinkingChunk,
    read_api_key,
)
from specchat_fleet.server_probe import detect_backend, served_models, some_names

if TYPE_CHECKING:
    from specchat.profile.keys import Profile

SERVER_DRAFTER = "server"  # the drafter name of answers from a server
SEED_BITS = 31
CALL_ID_BYTES = 8
CONTINUING_BACKENDS = ("vllm", "sglang")  # whose API can continue a given beginning of an answer
POLL_SECONDS = 0.02  # how often a waiting answer yields to other sessions
MAX_CONCURRENT_ANSWERS = 16  # a server has its own queue
# Values without effect, which the request omits.
NEUTRAL_SAMPLING: dict[str, Any] = {
    "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
}  # fmt: skip


@dataclass(eq=False)
class ServerEngine:
    client: ServerClient
    profile: Profile

    @property
    def max_concurrent_turns(self) -> int:
        return MAX_CONCURRENT_ANSWERS

    @property
    def variants(self) -> frozenset[str]:
        """What routes may name; the server drafts as it was started."""
        return frozenset({"auto", "plain"})

    def answer(self, question: Question, cancelled: Flag) -> ServerAnswer:
        return ServerAnswer(self.client, question, cancelled)

    def create_session(self, turns: Sequence[Turn] = ()) -> ServerSession:
        return ServerSession(self.client, self.profile, list(turns))

    def forget(self, name: str) -> None:
        """Nothing: the server holds the conversations."""

    def drop_forgotten(self) -> None:
        """Nothing is held here."""

    def memory_bytes(self) -> dict[str, int]:
        return {}

    def activate(self) -> None:
        """Nothing to prepare: the server computes."""

    def close(self) -> None:
        self.client.close()


def connect_server(
    profile: Profile,
    on_event: Callable[[Event], None] = lambda _event: None,
    timeouts: ServerTimeouts = DEFAULT_TIMEOUTS,
) -> ServerEngine:
    """Connect to the server of a profile. ModelError for no server, another backend, or a missing model."""
    models = profile.models
    on_event(Waiting(f"the server at {models.url}"))
    client = ServerClient(models.url, read_api_key(models.api_key_file), timeouts)
    try:
        _check_server(client, models.backend, models.target)
    except ModelError:
        client.close()
        raise
    client.begin_metrics()
    return ServerEngine(client, profile)


def _check_server(client: ServerClient, backend: str, target: str) -> None:
    served = served_models(client)
    detected = detect_backend(served)
    if backend == "openai":
        return  # a proxy may accept more model names than it lists
    if detected and detected != backend:
        message = f'the server at {client.url} is {detected}: set backend = "{detected}", or "openai"'
        raise ModelError(f"{message}; {FALLBACK_HINT}")
    names = [model.name for model in served]
    if names and target not in names:
        message = f"the server at {client.url} has no model {target!r}, only {some_names(names)}"
        raise ModelError(f"{message}; {FALLBACK_HINT}")


@dataclass(eq=False)
class ServerSession:
    client: ServerClient
    profile: Profile
    turns: list[Turn] = field(default_factory=list[Turn])

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Yield the events of an answer. While it waits, it yields empty texts, so that other sessions can run."""
        try:
            request = Request(request) if isinstance(request, str) else request
            question = Question(request, tuple(self.turns), self.profile)
            answer = ServerAnswer(self.client, question, cancelled or Flag())
            try:
                yield from answer.events()
            finally:
                self.turns = list(answer.turns)
        except SpecchatError as error:
            yield Failed.from_error(error)


class ServerAnswer:
    """An answer of a server. While it waits, it yields empty texts, so that other answers can go on."""

    def __init__(self, client: ServerClient, question: Question, cancelled: Flag) -> None:
        self.client, self.profile, self.turns, self.cancelled = client, question.profile, question.turns, cancelled
        self.request = request = _supported_request(self.profile, self.turns, question.request)
        seed = request.sampling(self.profile.sampling).seed
        self.seed = secrets.randbits(SEED_BITS) if seed is None else seed
        self.started_at, self.loading_seconds = perf_counter(), question.loading_seconds
        asked_at = self.started_at if question.asked_at is None else question.asked_at + self.loading_seconds
        self.asked_at = min(asked_at, self.started_at)
        self.first_token_at = self.last_token_at = 0.0
        self.text_parts: list[str] = []
        self.thinking_parts: list[str] = []
        self.thinking_ended_at = 0.0
        self.calls = StreamedCalls()
        self.call_ids: dict[int, str] = {}  # by the index of the server

    def events(self) -> Iterator[Event]:
        profile = self.profile
        body = chat_completion_body(profile, self.turns, self.request, self.seed)
        backend, url = profile.models.backend, profile.models.url
        name = "the server" if backend == "openai" else backend
        routed = [Routed(SERVER_DRAFTER, 0, f"{name} at {url} chooses the drafter", self.seed)]  # until it is sent
        beginning, stream_end = self.request.answer_prefix, StreamEnd("cancelled")
        response = self.client.stream_chat(body)
        try:
            while not self.cancelled.is_set():
                item = response.next_item(POLL_SECONDS)
                if routed and isinstance(item, TextChunk | ThinkingChunk | CallChunk):
                    yield routed.pop()
                match item:
                    case ThinkingChunk(text=text):
                        self._on_token()
                        self.thinking_ended_at = self.last_token_at
                        self.thinking_parts.append(text)
                        yield ThinkingDelta(text)
                    case TextChunk(text=text):
                        self._on_token()
                        self.text_parts.append(beginning + text)
                        beginning = ""
                        yield TextDelta(self.text_parts[-1])
                    case CallChunk() as chunk:
                        self._on_token()
                        yield from self._on_call(chunk)
                    case StreamEnd() as stream_end:
                        break
                    case Overloaded(seconds=seconds):
                        yield Waiting(f"the server at {url}, which is overloaded, for {seconds:.1f} s")
                    case ModelError() as error:
                        raise error
                    case None:
                        yield NO_OUTPUT_YET
        finally:
            response.cancel()
            self._store_turn(stream_end)
        yield from routed
        yield Finished(self._finish_reason(stream_end), self._totals(stream_end))

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """Has no effect: the server schedules its requests."""

    def _on_call(self, chunk: CallChunk) -> Iterator[Event]:
        deltas = list[ToolCallDelta]()
        if chunk.index not in self.call_ids:
            self.call_ids[chunk.index] = self._call_id(chunk.id)
            deltas.append(ToolCallDelta(len(self.calls), self.call_ids[chunk.index], chunk.name))
        call_id = self.call_ids[chunk.index]
        if chunk.arguments:
            deltas.append(ToolCallDelta([*self.call_ids].index(chunk.index), call_id, arguments=chunk.arguments))
        for delta in deltas:
            self.calls.add(delta)
        yield from deltas

    def _call_id(self, server_id: str) -> str:
        """The id of the server; one of ours where it gives none, or one that another call of the conversation has."""
        used = {*self.call_ids.values(), *(call.id for turn in self.turns for call in turn.tool_calls)}
        return server_id if server_id and server_id not in used else f"call_{secrets.token_hex(CALL_ID_BYTES)}"

    def _on_token(self) -> None:
        self.last_token_at = perf_counter()
        self.first_token_at = self.first_token_at or self.last_token_at

    def _store_turn(self, stream_end: StreamEnd) -> None:
        """Store the turn, unless the server failed before the first text."""
        if self.text_parts or self.calls or stream_end.finish_reason != "cancelled" or self.cancelled.is_set():
            is_finished = self._finish_reason(stream_end) in ("stop", TOOL_CALLS)
            turn = replace(
                Turn.of_request(self.request), answer="".join(self.text_parts), is_finished=is_finished, seed=self.seed,
                thinking="".join(self.thinking_parts), tool_calls=tuple(self.calls),
            )  # fmt: skip
            self.turns = (*self.turns, turn)

    def _finish_reason(self, stream_end: StreamEnd) -> str:
        """Servers end an answer with forced calls in different ways."""
        if stream_end.finish_reason in ("length", "cancelled"):
            return stream_end.finish_reason
        return TOOL_CALLS if self.calls else "stop"

    def _totals(self, stream_end: StreamEnd) -> Totals:
        counts = stream_end.spec_decode_counts
        counts = counts.scaled_to(stream_end.completion_tokens) if counts else None
        return Totals(
            prompt_tokens=stream_end.prompt_tokens,
            cached_tokens=stream_end.reused_tokens,
            completion_tokens=stream_end.completion_tokens,
            steps=max(1, stream_end.completion_tokens - counts.accepted_tokens) if counts else 0,
            draft_tokens=counts.draft_tokens if counts else 0,
            acceptance=counts.acceptance if counts else Acceptance(),
            accepted_by_drafter={SERVER_DRAFTER: counts.accepted_tokens} if counts else {},
            seconds=self.last_token_at - self.asked_at if self.last_token_at else 0.0,
            ttft_seconds=self.first_token_at - self.asked_at if self.first_token_at else 0.0,
            queue_seconds=self.started_at - self.asked_at,
            loading_seconds=self.loading_seconds,
            thinking_seconds=self.thinking_ended_at - self.first_token_at if self.thinking_parts else 0.0,
        )


def _supported_request(profile: Profile, turns: Sequence[Turn], request: Request) -> Request:
    """The request with the form of an edit, as far as the server knows it; without it, the system prompt has to do.

    The stop strings of an answer with a given beginning belong to this beginning.
    """
    formed = with_edit_contract(request, turns, profile.prompt)
    is_beginning_lost = formed.answer_prefix and profile.models.backend not in CONTINUING_BACKENDS
    is_format_lost = formed.answer_format and formed.answer_format.kind == LARK
    if not (is_beginning_lost or is_format_lost):
        return formed
    if is_format_lost and request.answer_format:
        raise UsageError(f"{LARK}: a server does not support this grammar; {FALLBACK_HINT}")
    stop = () if request.answer_prefix else request.stop
    return replace(formed, answer_prefix="", answer_format=request.answer_format, stop=stop)


def chat_completion_body(profile: Profile, turns: Sequence[Turn], request: Request, seed: int) -> dict[str, Any]:
    if request.only_renders:
        raise UsageError(f"a server does not show the prompt that its model reads; {FALLBACK_HINT}")
    sampling = request.sampling(profile.sampling)
    values = {name: getattr(sampling, name) for name in NEUTRAL_SAMPLING}
    extra_body = {name: value for name, value in values.items() if value != NEUTRAL_SAMPLING[name]}
    body: dict[str, Any] = {
        "model": profile.models.target,
        "messages": _messages(profile.system_prompt(request.task), turns, request),
        "max_tokens": request.max_tokens or profile.limits.answer,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed,
    }
    if request.offered_tools:
        body |= _tool_fields(request)
    if request.logit_bias:
        body["logit_bias"] = {str(each.token_id): each.bias for each in request.logit_bias}
    if request.stop:
        body["stop"] = list(request.stop)
    if request.answer_prefix:
        extra_body |= {"add_generation_prompt": False, "continue_final_message": True}
    thinking = request.thinking or profile.prompt.thinking
    if thinking != "auto" and profile.models.backend in CONTINUING_BACKENDS:
        extra_body["chat_template_kwargs"] = {"enable_thinking": thinking == "on"}
    if request.answer_format:
        extra_body |= _response_format(profile.models.backend, request.answer_format)
    return body | ({"extra_body": extra_body} if extra_body else {})


def _tool_fields(request: Request) -> dict[str, Any]:
    fields: dict[str, Any] = {"tools": [tool.to_template() for tool in request.offered_tools]}
    if request.tool_choice in (ANY_TOOL, CALL_OR_ANSWER):  # the server decides how its model calls
        return fields
    if request.tool_choice in TOOL_CHOICES:
        return fields | {"tool_choice": request.tool_choice}
    return fields | {"tool_choice": {"type": "function", "function": {"name": request.tool_choice}}}


def _messages(system: str, turns: Sequence[Turn], request: Request) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system.strip() else []
    calls: Sequence[ToolCall] = ()
    for turn in turns:
        messages += _question(turn, answered_calls(calls, turn.tool_results))
        called = {"tool_calls": [_call_object(call) for call in turn.tool_calls]} if turn.tool_calls else {}
        messages.append({"role": "assistant", "content": turn.answer, **called})
        calls = turn.tool_calls
    messages += _question(Turn.of_request(request), answered_calls(calls, request.tool_results))
    return [*messages, {"role": "assistant", "content": request.answer_prefix}] if request.answer_prefix else messages


def _question(turn: Turn, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    messages = [{"role": "tool", "tool_call_id": each.call_id, "content": result_text(each)} for each in results]
    if not results or turn.user.strip():
        messages.append({"role": "user", "content": with_attachments(turn.user, turn.files, turn.task)})
    return messages


def _call_object(call: ToolCall) -> dict[str, Any]:
    """A call of an earlier answer; servers refuse arguments that are no JSON."""
    function = {"name": call.name, "arguments": json.dumps(arguments_of(call), ensure_ascii=False)}
    return {"id": call.id, "type": "function", "function": function}


def _response_format(backend: str, answer_format: AnswerFormat) -> dict[str, Any]:
    """The answer format as parameters of the server; UsageError when the server has none for it."""
    if answer_format.kind == SCHEMA:
        named = {"name": "answer", "schema": answer_format.value, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    match backend:
        case "vllm":
            return {"structured_outputs": {"regex": answer_format.regex}}
        case "sglang":
            return {"regex": answer_format.regex}
        case _:
            message = f"{answer_format.kind}: only vllm and sglang support this; other servers support a schema"
            raise UsageError(f"{message}; {FALLBACK_HINT}")
