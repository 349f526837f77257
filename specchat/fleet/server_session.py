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

from specchat.chat.answer_format import SCHEMA, Structure
from specchat.chat.attachments import with_attachments
from specchat.chat.events import Event, Failed, Finished, Loading, Routed, Text, Totals
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import ModelError, SpecchatError, UsageError
from specchat.fleet.http_client import USUAL_PATIENCE, Ended, Line, Patience, Said, read_key
from specchat.fleet.server_errors import INSTEAD
from specchat.fleet.server_probe import known_as, served_models

if TYPE_CHECKING:
    from specchat.profile import Profile

SERVER = "server"  # who guesses, as far as we know
SEED_BITS = 31
LOOK_SECONDS = 0.02  # how often an answer that is waited for lets others have their turn
ANSWERS_AT_ONCE = 16  # a server has its own queue; this bounds ours
USUAL: dict[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}  # what no server needs to be told


@dataclass(eq=False)
class ServerEngine:
    """What a host holds of a server: a line to it."""

    line: Line
    profile: Profile

    @property
    def turns_at_once(self) -> int:
        """How many answers may be on their way."""
        return ANSWERS_AT_ONCE

    def session(self, turns: Sequence[Turn] = (), profile: Profile | None = None) -> ServerSession:
        """A conversation that goes on from these turns."""
        return ServerSession(self.line, profile or self.profile, list(turns))

    def memory(self) -> dict[str, int]:
        """Nothing is held here."""
        return {}

    def close(self) -> None:
        """Hang up."""
        self.line.close()


def load_server(
    profile: Profile, progress: Callable[[Event], None] = lambda _event: None, patience: Patience = USUAL_PATIENCE
) -> ServerEngine:
    """A line to the server of a profile. ModelError when it is down, another one, or has another model."""
    models = profile.models
    progress(Loading(f"server at {models.url}", 0, 0))
    line = Line(models.url, read_key(models.key_file), patience)
    try:
        _check(line, models.backend, models.target)
    except ModelError:
        line.close()
        raise
    return ServerEngine(line, profile)


def _check(line: Line, backend: str, target: str) -> None:
    """What can be known before the first question. A server that has no list of models is taken at its word."""
    served = served_models(line)
    known = known_as(served)
    if backend == "openai":
        return  # whoever stands before other servers may know more names than it lists
    if known and known != backend:
        raise ModelError(f'the server at {line.url} is {known}: write backend = "{known}", or "openai"; {INSTEAD}')
    names = [model.name for model in served]
    if names and target not in names:
        raise ModelError(f"the server at {line.url} has no model {target!r}, only {', '.join(names)}; {INSTEAD}")


@dataclass(eq=False)
class ServerSession:
    """One conversation."""

    line: Line
    profile: Profile
    turns: list[Turn] = field(default_factory=list[Turn])

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time; an empty text while there is nothing to tell, so that others are not held up."""
        try:
            request = Request(request) if isinstance(request, str) else request
            yield from _Answer(self, request, cancelled or Flag()).events()
        except SpecchatError as error:
            yield Failed.of(error)

    def make_way(self, waiting: int, *, is_urgent: bool = False) -> None:
        """The server knows how busy it is."""

    def close(self) -> None:
        """Nothing is held."""


class _Answer:
    """One turn while it is made."""

    def __init__(self, session: ServerSession, request: Request, cancelled: Flag) -> None:
        self.session, self.request, self.cancelled = session, request, cancelled
        seed = session.profile.sampling.seed if request.seed is None else request.seed
        self.seed = secrets.randbits(SEED_BITS) if seed is None else seed
        self.begun = perf_counter()
        self.first = self.last = 0.0
        self.text: list[str] = []

    def events(self) -> Iterator[Event]:
        """Ask the server and pass on what it says."""
        profile = self.session.profile
        body = question(profile, self.session.turns, self.request, self.seed)
        backend, url = profile.models.backend, profile.models.url
        kind = "the server" if backend == "openai" else backend
        yield Routed(SERVER, 0, f"{kind} at {url} decides who guesses", self.seed)
        ended = Ended("cancelled")
        reply = self.session.line.ask(body)
        try:
            while not self.cancelled.is_set():
                match reply.next(LOOK_SECONDS):
                    case Said(text=text):
                        yield self._said(text)
                    case Ended() as ended:
                        break
                    case ModelError() as error:
                        raise error
                    case None:
                        yield Text("")
        finally:
            reply.cancel()
            self._keep(ended)
        yield Finished(_reason(ended), self._totals(ended))

    def _said(self, text: str) -> Text:
        self.last = perf_counter()
        self.first = self.first or self.last
        self.text.append(text)
        return Text(text)

    def _keep(self, ended: Ended) -> None:
        """What was said stays said; a question that nobody answered is not kept, so that it can be asked elsewhere."""
        if self.text or ended.reason != "cancelled" or self.cancelled.is_set():
            request = self.request
            turn = Turn(
                request.text,
                request.files,
                answer="".join(self.text),
                finished=_reason(ended) == "stop",
                seed=self.seed,
            )
            self.session.turns.append(turn)

    def _totals(self, ended: Ended) -> Totals:
        guessed = ended.guessed.within(ended.tokens) if ended.guessed else None
        return Totals(
            prompt_tokens=ended.prompt_tokens,
            reused_tokens=ended.reused_tokens,
            tokens=ended.tokens,
            steps=max(1, ended.tokens - guessed.accepted) if guessed else 0,
            drafted=guessed.drafted if guessed else 0,
            accepted={SERVER: guessed.accepted} if guessed else {},
            verify_seconds=self.last - self.first,
            first_token_seconds=self.first - self.begun if self.first else 0.0,
        )


def _reason(ended: Ended) -> str:
    return ended.reason if ended.reason in ("length", "cancelled") else "stop"


def question(profile: Profile, turns: Sequence[Turn], request: Request, seed: int) -> dict[str, Any]:
    """What the server is asked: the whole conversation, for it keeps none."""
    sampling = profile.sampling
    temperature = sampling.temperature if request.temperature is None else request.temperature
    more = {name: getattr(sampling, name) for name, usual in USUAL.items() if getattr(sampling, name) != usual}
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
    if request.structure:
        more |= _form(profile.models.backend, request.structure)
    return body | ({"extra_body": more} if more else {})


def _messages(system: str, turns: Sequence[Turn], request: Request) -> list[dict[str, str]]:
    said: list[dict[str, str]] = [{"role": "system", "content": system}] if system.strip() else []
    for turn in turns:
        said.append({"role": "user", "content": with_attachments(turn.user, turn.files)})
        said.append({"role": "assistant", "content": turn.answer})
    return [*said, {"role": "user", "content": with_attachments(request.text, request.files)}]


def _form(backend: str, structure: Structure) -> dict[str, Any]:
    """The form of an answer, as the server calls it; UsageError where it has no word for it."""
    if structure.kind == SCHEMA:
        named = {"name": "answer", "schema": structure.value, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    match backend:
        case "vllm":
            return {"structured_outputs": {"regex": structure.pattern}}
        case "sglang":
            return {"regex": structure.pattern}
        case _:
            raise UsageError(f"{structure.kind}: only vllm and sglang take this, other servers a schema; {INSTEAD}")
