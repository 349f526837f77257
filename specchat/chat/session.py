"""A conversation: requests in, events out.

Owns the turns, the text and the drafters of one conversation. Knows no screen, no socket and no file.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Event as Flag
from time import perf_counter
from typing import Self

from specchat.chat.answer_format import SCHEMA, Structure
from specchat.chat.events import TARGET, Committed, Event, Failed, Finished, Prefill, Routed, StepDone, Text, Totals
from specchat.chat.prompt import extend
from specchat.chat.reference_corpus import Reference
from specchat.chat.request import Request
from specchat.chat.rewrite_source import original_of
from specchat.chat.router import Route, choose_route
from specchat.chat.transcript import Turn
from specchat.chooser.acceptance import PLAIN
from specchat.chooser.chooser import Chooser, Memory, Pressure
from specchat.chooser.costs import Costs
from specchat.drafters.combined import Copying
from specchat.engine.decode import Plan, Step, Writing
from specchat.engine.drafter import Drafter
from specchat.engine.grammar import Grammar
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.stats import Stats
from specchat.errors import ContextError, SpecchatError
from specchat.models.llguidance_grammar import grammar_of_pattern, grammar_of_schema
from specchat.models.tokenizer import TextStream, Tokenizer
from specchat.profile import Profile

SEED_BITS = 31


@dataclass(frozen=True)
class Voice:
    """Everything a session speaks with that outlives it: the loaded models, and how to use them."""

    target: Model
    tokenizer: Tokenizer
    profile: Profile
    costs: Costs
    memory: Memory  # of who guessed well
    reference: Reference | None = None  # a book to quote from


class Session(AbstractContextManager["Session"]):
    """One conversation. `drafters` maps each variant to who drafts for it; the chooser tells all of them what held."""

    def __init__(
        self, voice: Voice, drafters: Mapping[str, Drafter], chooser: Chooser, turns: Sequence[Turn] = ()
    ) -> None:
        self.voice, self.drafters, self.chooser = voice, drafters, chooser
        self.turns: list[Turn] = list(turns)
        self.writing = Writing(voice.target, (chooser,))

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time. Set `cancelled` from any thread to end within a step; the partial stays."""
        try:
            request = Request(request) if isinstance(request, str) else request
            yield from _Answer(self, request, cancelled or Flag()).events()
        except SpecchatError as error:
            yield Failed.of(error)

    def listen_to(self, variant: str) -> None:
        """Let who drafts hear of the text from now on; those among whom is chosen always do."""
        drafter = self.drafters[variant]
        if drafter not in (*self.writing.drafters, *self.chooser.drafters.values()):
            self.writing.listen(drafter)

    def make_way(self, waiting: int, *, is_urgent: bool = False) -> None:
        """So many other answers wait for their next step: guess less. While a completion is written, guess nothing."""
        self.chooser.pressure = Pressure(waiting, is_urgent)

    def rewind(self, count: int = 1) -> list[Turn]:
        """Take back the last turns, to edit a question or to draw another answer; returns what was taken."""
        kept = max(len(self.turns) - count, 0)
        taken, self.turns = self.turns[kept:], self.turns[:kept]
        return taken

    def close(self) -> None:
        """Give back the memory of the conversation."""
        self.writing.close()


class _Answer:
    """One turn while it is made."""

    def __init__(self, session: Session, request: Request, cancelled: Flag) -> None:
        self.session, self.request, self.cancelled = session, request, cancelled
        self.begun = perf_counter()
        self.profile = session.voice.profile
        self.writing = session.writing
        self.sampler = _sampler(request, session.voice)
        self.grammar = _grammar(request.structure, session.voice)
        self.stats, self.totals = Stats(), Totals()
        self.text: list[str] = []

    def events(self) -> Iterator[Event]:
        """Read the prompt, then decode and say what happens."""
        session, voice = self.session, self.session.voice
        candidates = frozenset({PLAIN, *session.chooser.drafters})
        route = choose_route(self.request, self.profile, frozenset(session.drafters), candidates)
        session.listen_to(route.variant)
        prompt = extend(voice.tokenizer, self.profile.prompt.system, session.turns, self.request, voice.reference)
        limit = self._limit(len(prompt.ids))
        yield Routed(route.variant, route.budget, route.reason, self.sampler.seed)
        reused = self.writing.revise(prompt.ids)
        turn = Turn(
            user=self.request.text, files=self.request.files, prompt_ids=tuple(prompt.ids), rendered=prompt.rendered,
            seed=self.sampler.seed,
        )  # fmt: skip
        with voice.target.pool.seated(self.writing.cache, self.writing.rows_for(limit)):
            reason = yield from self._written(turn, route, limit, reused)
        yield Finished(reason, self._totals())

    def _written(self, turn: Turn, route: Route, limit: int, reused: int) -> Generator[Event, None, str]:
        """The turn itself. It is kept in any case, also when nobody listens any more: what was said stays said."""
        reason = "cancelled"
        try:
            yield from self._read(reused)
            if not self.cancelled.is_set():
                self._prepare(route)
                reason = yield from self._decode(route, limit)
            self._price()
        finally:
            answer = tuple(self.writing.tokens[len(turn.prompt_ids) :])
            said = "".join(self.text)
            self.session.turns.append(replace(turn, answer=said, answer_ids=answer, finished=reason == "stop"))
        return reason

    def _read(self, reused: int) -> Iterator[Event]:
        total = len(self.writing.tokens)
        self.totals = Totals(prompt_tokens=total, reused_tokens=reused)
        for known in self.writing.read():
            yield Prefill(known + 1, total, reused)
            if self.cancelled.is_set():
                return
        self.totals = replace(self.totals, prefill_seconds=perf_counter() - self.begun)

    def _decode(self, route: Route, limit: int) -> Generator[Event, None, str]:
        """Yields what is heard; returns why it ended."""
        voice, start = self.session.voice, len(self.writing.tokens)
        stream = voice.tokenizer.stream(self.request.stop)
        drafter = self.session.drafters[route.variant]
        plan = Plan(drafter, self.sampler, route.budget, limit, voice.tokenizer.stop, self.grammar)
        for step in self.writing.steps(plan):
            if not self.stats.steps:
                self.totals = replace(self.totals, first_token_seconds=perf_counter() - self.begun)
            piece = stream.push(step.tokens)
            self.stats.add(step, piece.kept)
            yield from self._said(piece.text)
            yield _step_done(step, piece.kept, voice.tokenizer)
            if piece.stopped:
                self.writing.cut(len(self.writing.tokens) - len(step.tokens) + piece.kept)
                return "stop"
            if self.cancelled.is_set():
                yield from self._rest(stream)
                return "cancelled"
        yield from self._rest(stream)
        ended = len(self.writing.tokens) > start and self.writing.tokens[-1] in voice.tokenizer.stop
        return "stop" if ended else "length"

    def _said(self, text: str) -> Iterator[Event]:
        if text:
            self.text.append(text)
            yield Text(text)

    def _rest(self, stream: TextStream) -> Iterator[Event]:
        yield from self._said(stream.flush())

    def _limit(self, prompt: int) -> int:
        window = min(self.profile.limits.context, self.session.voice.target.window)
        room = window - prompt
        if room < 1:
            raise ContextError(
                f"the prompt has {prompt} tokens and the window holds {window}; shorten it, or raise limits.context "
                "if the model was made for more"
            )
        return min(self.request.max_tokens or self.profile.limits.answer, room)

    def _prepare(self, route: Route) -> None:
        """Let the chooser know what is asked; who has drafters compared needs to know what passes cost here."""
        session = self.session
        tokenizer, original = session.voice.tokenizer, original_of(self.request, session.turns)
        tokens = tokenizer.encode_inside(tokenizer.guard(original)) if original else []
        for drafter in session.drafters.values():
            if isinstance(drafter, Copying):
                drafter.rewrite(tokens, len(self.writing.tokens))
        session.chooser.begin(route.kind, route.order)
        if session.drafters[route.variant] is session.chooser:
            session.voice.costs.calibrate(self.writing)

    def _price(self) -> None:
        """Make sure that the cost of a plain pass over this much text is known; who cancels does not wait for it."""
        costs = self.session.voice.costs
        if self.stats.steps and not self.cancelled.is_set() and costs.at(len(self.writing.tokens)) is None:
            costs.measure(self.writing)
        costs.save()

    def _totals(self) -> Totals:
        stats = self.stats
        return replace(
            self.totals, tokens=stats.tokens, steps=stats.steps, drafted=stats.drafted, accepted=dict(stats.accepted),
            draft_seconds=stats.draft_seconds, verify_seconds=stats.verify_seconds,
            plain_seconds=self.session.voice.costs.at(len(self.writing.tokens)) or 0.0,
            why=self.session.chooser.why().sentence(),
        )  # fmt: skip


def _sampler(request: Request, voice: Voice) -> Sampler:
    """The rules of this turn. Each turn draws a seed of its own unless one is given."""
    sampling, speculation = voice.profile.sampling, voice.profile.speculation
    seed = request.seed if request.seed is not None else sampling.seed
    return Sampler(
        temperature=sampling.temperature if request.temperature is None else request.temperature,
        top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        vocabulary=min(voice.tokenizer.size, voice.target.vocabulary),
        is_classic=speculation.rule == "classic" and not speculation.exact,
    )  # fmt: skip


def _grammar(structure: Structure | None, voice: Voice) -> Grammar | None:
    """The form of an answer, for the tokens of this model."""
    if structure is None:
        return None
    tokenizer = voice.tokenizer
    columns = max(tokenizer.size, voice.target.vocabulary)
    if structure.kind == SCHEMA:
        return grammar_of_schema(structure.text, tokenizer.folder, columns, tokenizer.stop)
    return grammar_of_pattern(structure.pattern, tokenizer.folder, columns, tokenizer.stop)


def _step_done(step: Step, kept: int, tokenizer: Tokenizer) -> StepDone:
    sources = [*step.sources, TARGET]
    committed = tuple(
        Committed(token, tokenizer.bytes_of(token), source)
        for token, source in zip(step.tokens[:kept], sources[:kept], strict=True)
    )
    guesses = tuple(step.tree.tokens[1:])
    return StepDone(
        guesses, tuple(step.tree.parents[1:]), committed, step.draft_seconds, step.verify_seconds,
        words=tuple(tokenizer.bytes_of(token) for token in guesses), sources=tuple(step.tree.sources[1:]),
    )  # fmt: skip
