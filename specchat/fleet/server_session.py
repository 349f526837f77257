"""A conversation whose answers come from a server, and the engine that a host steps as if it computed them itself.

The same events as from our own engine, without steps: a server tells text, and in the end how much it guessed. Turns
keep no tokens, for nobody here knows them; a conversation can go on with our own engine, and back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from time import perf_counter
from typing import TYPE_CHECKING, Any

from specchat.chat.answer_format import SCHEMA, AnswerFormat
from specchat.chat.attachments import with_attachments
from specchat.chat.events import Event, Failed, Finished, LoadingProgress, Routed, TextDelta, Totals
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import ModelError, SpecchatError, UsageError
from specchat.fleet.server_client import (
    DEFAULT_TIMEOUTS,
    ServerClient,
    ServerTimeouts,
    StreamEnd,
    TextChunk,
    read_api_key,
)
from specchat.fleet.server_errors import FALLBACK_HINT
from specchat.fleet.server_probe import detect_backend, served_models

if TYPE_CHECKING:
    from specchat.profile import Profile

SERVER_DRAFTER = "server"  # who guesses, as far as we know
SEED_BITS = 31
POLL_SECONDS = 0.02  # how often an answer that is waited for lets others have their turn
MAX_CONCURRENT_ANSWERS = 16  # a server has its own queue; this bounds ours
NEUTRAL_SAMPLING: dict[str, Any] = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}  # what no server needs to be told


@dataclass(eq=False)
class ServerEngine:
    """What a host holds of a server: a line to it."""

    client: ServerClient
    profile: Profile

    @property
    def max_concurrent_turns(self) -> int:
        """How many answers may be on their way."""
        return MAX_CONCURRENT_ANSWERS

    def create_session(self, turns: Sequence[Turn] = (), profile: Profile | None = None) -> ServerSession:
        """A conversation that goes on from these turns."""
        return ServerSession(self.client, profile or self.profile, list(turns))

    def memory_bytes(self) -> dict[str, int]:
        """Nothing is held here."""
        return {}

    def close(self) -> None:
        """Hang up."""
        self.client.close()


def connect_server(
    profile: Profile,
    on_event: Callable[[Event], None] = lambda _event: None,
    timeouts: ServerTimeouts = DEFAULT_TIMEOUTS,
) -> ServerEngine:
    """A line to the server of a profile. ModelError when it is down, another one, or has another model."""
    models = profile.models
    on_event(LoadingProgress(f"server at {models.url}", 0, 0))
    line = ServerClient(models.url, read_api_key(models.api_key_file), timeouts)
    try:
        _check_server(line, models.backend, models.target)
    except ModelError:
        line.close()
        raise
    return ServerEngine(line, profile)


def _check_server(client: ServerClient, backend: str, target: str) -> None:
    """What can be known before the first question. A server that has no list of models is taken at its word."""
    served = served_models(client)
    known = detect_backend(served)
    if backend == "openai":
        return  # whoever stands before other servers may know more names than it lists
    if known and known != backend:
        raise ModelError(
            f'the server at {client.url} is {known}: write backend = "{known}", or "openai"; {FALLBACK_HINT}'
        )
    names = [model.name for model in served]
    if names and target not in names:
        raise ModelError(
            f"the server at {client.url} has no model {target!r}, only {', '.join(names)}; {FALLBACK_HINT}"
        )


@dataclass(eq=False)
class ServerSession:
    """One conversation."""

    client: ServerClient
    profile: Profile
    turns: list[Turn] = field(default_factory=list[Turn])

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time; an empty text while there is nothing to tell, so that others are not held up."""
        try:
            request = Request(request) if isinstance(request, str) else request
            yield from _ServerAnswer(self, request, cancelled or Flag()).events()
        except SpecchatError as error:
            yield Failed.from_error(error)

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """The server knows how busy it is."""

    def close(self) -> None:
        """Nothing is held."""


class _ServerAnswer:
    """One turn while it is made."""

    def __init__(self, session: ServerSession, request: Request, cancelled: Flag) -> None:
        self.session, self.request, self.cancelled = session, request, cancelled
        seed = session.profile.sampling.seed if request.seed is None else request.seed
        self.seed = secrets.randbits(SEED_BITS) if seed is None else seed
        self.started_at = perf_counter()
        self.first_token_at = self.last_token_at = 0.0
        self.text_parts: list[str] = []

    def events(self) -> Iterator[Event]:
        """Ask the server and pass on what it says."""
        profile = self.session.profile
        body = chat_completion_body(profile, self.session.turns, self.request, self.seed)
        backend, url = profile.models.backend, profile.models.url
        kind = "the server" if backend == "openai" else backend
        yield Routed(SERVER_DRAFTER, 0, f"{kind} at {url} decides who guesses", self.seed)
        ended = StreamEnd("cancelled")
        reply = self.session.client.stream_chat(body)
        try:
            while not self.cancelled.is_set():
                match reply.next_item(POLL_SECONDS):
                    case TextChunk(text=text):
                        yield self._on_text(text)
                    case StreamEnd() as ended:
                        break
                    case ModelError() as error:
                        raise error
                    case None:
                        yield TextDelta("")
        finally:
            reply.cancel()
            self._store_turn(ended)
        yield Finished(_finish_reason(ended), self._totals(ended))

    def _on_text(self, text: str) -> TextDelta:
        self.last_token_at = perf_counter()
        self.first_token_at = self.first_token_at or self.last_token_at
        self.text_parts.append(text)
        return TextDelta(text)

    def _store_turn(self, stream_end: StreamEnd) -> None:
        """What was said stays said; a question that nobody answered is not kept, so that it can be asked elsewhere."""
        if self.text_parts or stream_end.finish_reason != "cancelled" or self.cancelled.is_set():
            request = self.request
            turn = Turn(
                request.text,
                request.files,
                answer="".join(self.text_parts),
                is_finished=_finish_reason(stream_end) == "stop",
                seed=self.seed,
            )
            self.session.turns.append(turn)

    def _totals(self, stream_end: StreamEnd) -> Totals:
        guessed = (
            stream_end.spec_decode_counts.scaled_to(stream_end.completion_tokens)
            if stream_end.spec_decode_counts
            else None
        )
        return Totals(
            prompt_tokens=stream_end.prompt_tokens,
            cached_tokens=stream_end.reused_tokens,
            completion_tokens=stream_end.completion_tokens,
            steps=max(1, stream_end.completion_tokens - guessed.accepted_tokens) if guessed else 0,
            draft_tokens=guessed.draft_tokens if guessed else 0,
            accepted_by_drafter={SERVER_DRAFTER: guessed.accepted_tokens} if guessed else {},
            verify_seconds=self.last_token_at - self.first_token_at,
            ttft_seconds=self.first_token_at - self.started_at if self.first_token_at else 0.0,
        )


def _finish_reason(stream_end: StreamEnd) -> str:
    return stream_end.finish_reason if stream_end.finish_reason in ("length", "cancelled") else "stop"


def chat_completion_body(profile: Profile, turns: Sequence[Turn], request: Request, seed: int) -> dict[str, Any]:
    """What the server is asked: the whole conversation, for it keeps none."""
    sampling = profile.sampling
    temperature = sampling.temperature if request.temperature is None else request.temperature
    more = {
        name: getattr(sampling, name) for name, usual in NEUTRAL_SAMPLING.items() if getattr(sampling, name) != usual
    }
    body: dict[str, Any] = {
        "model": profile.models.target,
        "messages": _messages(profile.prompt.system, turns, request),
        "max_tokens": request.max_tokens or profile.limits.answer,
        "temperature": temperature,
        "top_p": sampling.top_p,
        "seed": seed,
    }
    if request.stop:
        body["stop"] = list(request.stop)
    if request.answer_format:
        more |= _response_format(profile.models.backend, request.answer_format)
    return body | ({"extra_body": more} if more else {})


def _messages(system: str, turns: Sequence[Turn], request: Request) -> list[dict[str, str]]:
    said: list[dict[str, str]] = [{"role": "system", "content": system}] if system.strip() else []
    for turn in turns:
        said.append({"role": "user", "content": with_attachments(turn.user, turn.files)})
        said.append({"role": "assistant", "content": turn.answer})
    return [*said, {"role": "user", "content": with_attachments(request.text, request.files)}]


def _response_format(backend: str, structure: AnswerFormat) -> dict[str, Any]:
    """The form of an answer, as the server calls it; UsageError where it has no word for it."""
    if structure.kind == SCHEMA:
        named = {"name": "answer", "schema": structure.value, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    match backend:
        case "vllm":
            return {"structured_outputs": {"regex": structure.regex}}
        case "sglang":
            return {"regex": structure.regex}
        case _:
            raise UsageError(
                f"{structure.kind}: only vllm and sglang take this, other servers a schema; {FALLBACK_HINT}"
            )
