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

from specchat.chat.answer_format import SCHEMA, AnswerFormat
from specchat.chat.events import (
    TARGET,
    CommittedToken,
    Event,
    Failed,
    Finished,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Totals,
)
from specchat.chat.prompt import build_next_prompt
from specchat.chat.reference_corpus import ReferenceCorpus
from specchat.chat.request import Request
from specchat.chat.rewrite_source import rewrite_original
from specchat.chat.router import Route, choose_route
from specchat.chat.transcript import Turn
from specchat.chooser.acceptance import PLAIN
from specchat.chooser.chooser import Chooser, ChooserState, DeviceLoad
from specchat.chooser.costs import Costs
from specchat.drafters.combined import SuffixAndRealign
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.engine.grammar import Grammar
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.stats import DecodingStats
from specchat.errors import ContextError, SpecchatError
from specchat.models.llguidance_grammar import json_schema_grammar, regex_grammar
from specchat.models.tokenizer import Detokenizer, Tokenizer
from specchat.profile import Profile

SEED_BITS = 31


@dataclass(frozen=True)
class LoadedModels:
    """Everything a session speaks with that outlives it: the loaded models, and how to use them."""

    target: Model
    tokenizer: Tokenizer
    profile: Profile
    costs: Costs
    chooser_state: ChooserState  # of who guessed well
    reference_corpus: ReferenceCorpus | None = None  # a book to quote from


class Session(AbstractContextManager["Session"]):
    """One conversation. `drafters` maps each variant to who drafts for it; the chooser tells all of them what held."""

    def __init__(
        self, models: LoadedModels, drafters: Mapping[str, Drafter], chooser: Chooser, turns: Sequence[Turn] = ()
    ) -> None:
        self.models, self.drafters, self.chooser = models, drafters, chooser
        self.turns: list[Turn] = list(turns)
        self.generation = Generation(models.target, (chooser,))

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time. Set `cancelled` from any thread to end within a step; the partial stays."""
        try:
            request = Request(request) if isinstance(request, str) else request
            yield from _RunningTurn(self, request, cancelled or Flag()).events()
        except SpecchatError as error:
            yield Failed.from_error(error)

    def attach_drafter(self, variant: str) -> None:
        """Let who drafts hear of the text from now on; those among whom is chosen always do."""
        drafter = self.drafters[variant]
        if drafter not in (*self.generation.drafters, *self.chooser.drafters.values()):
            self.generation.add_drafter(drafter)

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """So many other answers wait for their next step: guess less. While a completion is written, guess nothing."""
        self.chooser.device_load = DeviceLoad(waiting_requests, is_urgent)

    def rewind(self, count: int = 1) -> list[Turn]:
        """Take back the last turns, to edit a question or to draw another answer; returns what was taken."""
        kept = max(len(self.turns) - count, 0)
        taken, self.turns = self.turns[kept:], self.turns[:kept]
        return taken

    def close(self) -> None:
        """Give back the memory of the conversation."""
        self.generation.close()


class _RunningTurn:
    """One turn while it is made."""

    def __init__(self, session: Session, request: Request, cancelled: Flag) -> None:
        self.session, self.request, self.cancelled = session, request, cancelled
        self.start_time = perf_counter()
        self.profile = session.models.profile
        self.generation = session.generation
        self.sampler = _sampler(request, session.models)
        self.grammar = _grammar(request.answer_format, session.models)
        self.stats, self.totals = DecodingStats(), Totals()
        self.text_pieces: list[str] = []

    def events(self) -> Iterator[Event]:
        """Read the prompt, then decode and say what happens."""
        session, voice = self.session, self.session.models
        candidates = frozenset({PLAIN, *session.chooser.drafters})
        route = choose_route(self.request, self.profile, frozenset(session.drafters), candidates)
        session.attach_drafter(route.variant)
        prompt = build_next_prompt(
            voice.tokenizer, self.profile.prompt.system, session.turns, self.request, voice.reference_corpus
        )
        limit = self._max_new_tokens(len(prompt.token_ids))
        yield Routed(route.variant, route.budget, route.reason, self.sampler.seed)
        reused = self.generation.replace_tokens(prompt.token_ids)
        turn = Turn(
            user=self.request.text, files=self.request.files, prompt_ids=tuple(prompt.token_ids), rendered_prompt=prompt.rendered_prompt,
            seed=self.sampler.seed,
        )  # fmt: skip
        with voice.target.pool.acquire_slot(self.generation.cache, self.generation.rows_needed(limit)):
            reason = yield from self._run_turn(turn, route, limit, reused)
        yield Finished(reason, self._totals())

    def _run_turn(self, turn: Turn, route: Route, limit: int, reused: int) -> Generator[Event, None, str]:
        """The turn itself. It is kept in any case, also when nobody listens any more: what was said stays said."""
        reason = "cancelled"
        try:
            yield from self._prefill(reused)
            if not self.cancelled.is_set():
                self._prepare_drafters(route)
                reason = yield from self._decode(route, limit)
            self._measure_plain_step()
        finally:
            answer = tuple(self.generation.tokens[len(turn.prompt_ids) :])
            said = "".join(self.text_pieces)
            self.session.turns.append(replace(turn, answer=said, answer_ids=answer, finished=reason == "stop"))
        return reason

    def _prefill(self, reused: int) -> Iterator[Event]:
        total = len(self.generation.tokens)
        self.totals = Totals(prompt_tokens=total, cached_tokens=reused)
        for known in self.generation.prefill():
            yield PrefillProgress(known + 1, total, reused)
            if self.cancelled.is_set():
                return
        self.totals = replace(self.totals, prefill_seconds=perf_counter() - self.start_time)

    def _decode(self, route: Route, limit: int) -> Generator[Event, None, str]:
        """Yields what is heard; returns why it ended."""
        voice, start = self.session.models, len(self.generation.tokens)
        stream = voice.tokenizer.detokenizer(self.request.stop)
        drafter = self.session.drafters[route.variant]
        plan = GenerationConfig(
            drafter, self.sampler, route.budget, limit, voice.tokenizer.stop_token_ids, self.grammar
        )
        for step in self.generation.decode(plan):
            if not self.stats.steps:
                self.totals = replace(self.totals, first_token_seconds=perf_counter() - self.start_time)
            piece = stream.push(step.committed_tokens)
            self.stats.add(step, piece.token_count)
            yield from self._emit_text(piece.text)
            yield _step_done(step, piece.token_count, voice.tokenizer)
            if piece.is_stopped:
                self.generation.truncate(len(self.generation.tokens) - len(step.committed_tokens) + piece.token_count)
                return "stop"
            if self.cancelled.is_set():
                yield from self._flush_stream(stream)
                return "cancelled"
        yield from self._flush_stream(stream)
        ended = len(self.generation.tokens) > start and self.generation.tokens[-1] in voice.tokenizer.stop_token_ids
        return "stop" if ended else "length"

    def _emit_text(self, text: str) -> Iterator[Event]:
        if text:
            self.text_pieces.append(text)
            yield TextDelta(text)

    def _flush_stream(self, stream: Detokenizer) -> Iterator[Event]:
        yield from self._emit_text(stream.flush())

    def _max_new_tokens(self, prompt: int) -> int:
        window = min(self.profile.limits.context, self.session.models.target.context_window)
        room = window - prompt
        if room < 1:
            raise ContextError(
                f"the prompt has {prompt} tokens and the window holds {window}; shorten it, or raise limits.context "
                "if the model was made for more"
            )
        return min(self.request.max_tokens or self.profile.limits.answer, room)

    def _prepare_drafters(self, route: Route) -> None:
        """Let the chooser know what is asked; who has drafters compared needs to know what passes cost here."""
        session = self.session
        tokenizer, original = session.models.tokenizer, rewrite_original(self.request, session.turns)
        tokens = tokenizer.encode_continuation(tokenizer.escape_control_tokens(original)) if original else []
        for drafter in session.drafters.values():
            if isinstance(drafter, SuffixAndRealign):
                drafter.set_original(tokens, len(self.generation.tokens))
        session.chooser.start_answer(route.kind, route.drafter_order)
        if session.drafters[route.variant] is session.chooser:
            session.models.costs.calibrate(self.generation)

    def _measure_plain_step(self) -> None:
        """Make sure that the cost of a plain pass over this much text is known; who cancels does not wait for it."""
        costs = self.session.models.costs
        if (
            self.stats.steps
            and not self.cancelled.is_set()
            and costs.plain_seconds(len(self.generation.tokens)) is None
        ):
            costs.measure_plain_pass(self.generation)
        costs.save()

    def _totals(self) -> Totals:
        stats = self.stats
        return replace(
            self.totals, tokens=stats.tokens, steps=stats.steps, drafted=stats.drafted, accepted=dict(stats.accepted_by_drafter),
            draft_seconds=stats.draft_seconds, verify_seconds=stats.verify_seconds,
            plain_seconds=self.session.models.costs.plain_seconds(len(self.generation.tokens)) or 0.0,
            why=self.session.chooser.choice_summary().describe(),
        )  # fmt: skip


def _sampler(request: Request, voice: LoadedModels) -> Sampler:
    """The rules of this turn. Each turn draws a seed of its own unless one is given."""
    sampling, speculation = voice.profile.sampling, voice.profile.speculation
    seed = request.seed if request.seed is not None else sampling.seed
    return Sampler(
        temperature=sampling.temperature if request.temperature is None else request.temperature,
        top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        vocab_size=min(voice.tokenizer.vocab_size, voice.target.vocab_size),
        uses_rejection_sampling=speculation.acceptance_test == "classic" and not speculation.exact,
    )  # fmt: skip


def _grammar(structure: AnswerFormat | None, voice: LoadedModels) -> Grammar | None:
    """The form of an answer, for the tokens of this model."""
    if structure is None:
        return None
    tokenizer = voice.tokenizer
    columns = max(tokenizer.vocab_size, voice.target.vocab_size)
    if structure.kind == SCHEMA:
        return json_schema_grammar(structure.text, tokenizer.folder, columns, tokenizer.stop_token_ids)
    return regex_grammar(structure.regex, tokenizer.folder, columns, tokenizer.stop_token_ids)


def _step_done(step: Step, kept: int, tokenizer: Tokenizer) -> StepDone:
    sources = [*step.accepted_sources, TARGET]
    committed = tuple(
        CommittedToken(token, tokenizer.token_bytes(token), source)
        for token, source in zip(step.committed_tokens[:kept], sources[:kept], strict=True)
    )
    guesses = tuple(step.tree.tokens[1:])
    return StepDone(
        guesses, tuple(step.tree.parents[1:]), committed, step.draft_seconds, step.verify_seconds,
        draft_token_bytes=tuple(tokenizer.token_bytes(token) for token in guesses), draft_sources=tuple(step.tree.sources[1:]),
    )  # fmt: skip
