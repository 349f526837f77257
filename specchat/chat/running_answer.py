"""An answer: a question with the turns before it in, events out.

It goes on from a text that the prefix cache has, with the drafters that follow this text. It knows no screen, no socket
and no file; of threads it knows only a watchdog, which may use fewer of them on a busy machine.
"""

import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Event as Flag
from typing import Protocol

from specchat.chat.answer_account import AnswerAccount, step_done
from specchat.chat.answer_grammar import grammar_within, required_grammar, thinking_of, with_answer_tool
from specchat.chat.answer_parts import AnswerParts
from specchat.chat.context_fit import ContextFit
from specchat.chat.drafted_text import DraftedText, LoadedModels
from specchat.chat.edit_contract import with_edit_contract
from specchat.chat.events import (
    NO_OUTPUT_YET,
    REPETITION,
    TOOL_CALLS,
    Event,
    Finished,
    Notice,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Totals,
    Waiting,
)
from specchat.chat.plain_baseline import UNKNOWN_ESTIMATE
from specchat.chat.prompt import NextPrompt
from specchat.chat.repetition import EXPLANATION, Repetition, RepetitionDetector
from specchat.chat.request import Request, TokenBias, check_token_ids
from specchat.chat.router import Route, choose_route
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.chooser.acceptance import PLAIN
from specchat.engine.cache_sizes import bucket_of
from specchat.engine.decode import GenerationConfig, common_prefix_length
from specchat.engine.drafter import AnswerTask
from specchat.engine.sampling import Sampler
from specchat.hub.model_size import is_small, too_small
from specchat.profile.keys import Sampling
from specchat.text.answer_stream import AnswerStream, StreamedParts
from specchat.text.chat_format import AUTO_THINKING
from specchat.text.closed_schema import schema_notices
from specchat.text.tokenizer import Tokenizer
from specchat.threads import ThreadWatchdog

SEED_BITS = 31


class Texts(Protocol):
    """Where an answer finds the text that it extends, such as `PrefixCache`."""

    def use(self, tokens: list[int], owner: TextOwner, form: bool) -> AbstractContextManager[DraftedText]: ...


class RunningAnswer:
    """One answer. Afterwards `turns` are those that the model reads from now on, with that of this answer."""

    def __init__(
        self,
        models: LoadedModels,
        texts: Texts,
        question: Question,
        cancelled: Flag,
        watchdog: ThreadWatchdog | None = None,
    ) -> None:
        self.models, self.texts, self.question, self.cancelled = models, texts, question, cancelled
        self._watchdog, self.account = watchdog, AnswerAccount(question.asked_at, question.loading_seconds)
        profile, reads_tools = models.profile, models.tokenizer.chat.reads_tools
        request = with_edit_contract(question.request, question.turns, profile.prompt)
        request = with_answer_tool(request, question.turns, profile.agent, reads_tools=reads_tools)
        self.fit = ContextFit(models, request, question.turns, thinking_of(request, profile.prompt))
        self.sampler = sampler_of(request.sampling(models.profile.sampling), models, request.logit_bias)
        self.grammar = required_grammar(request, models)
        self.text: DraftedText | None = None  # while it is computed
        self.parts = self._no_parts()
        self.repetition: Repetition | None = None
        self._repeated_characters = 0
        self._undecided = list[Event]()  # what may turn out to be repeats
        self._answered: Turn | None = None

    @property
    def request(self) -> Request:
        """As the model reads it."""
        return self.fit.request

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self.fit.turns if self._answered is None else (*self.fit.turns, self._answered)

    def events(self) -> Iterator[Event]:
        """The events; SpecchatError when there is no answer."""
        with self._watchdog.answering() if self._watchdog else nullcontext():
            for event in self._events():
                if self._watchdog and isinstance(event, StepDone):
                    kind = bucket_of(len(self._drafted.generation.tokens)), len(event.draft_tokens)
                    self._watchdog.record_pass(kind, event.verify_seconds)
                with self.account.other_work():
                    yield event

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """As that of its text, once there is one."""
        self.account.shares_engine = waiting_requests > 0 or is_urgent
        if self.text is not None:
            self.text.set_load(waiting_requests, is_urgent=is_urgent)

    @property
    def _drafted(self) -> DraftedText:
        assert self.text is not None, "the answer has no text yet"
        return self.text

    def _events(self) -> Iterator[Event]:
        notified = self.question.notified
        yield from _say_once(notified, "models", self.models.notices)
        yield from _say_once(notified, "thinking", thinking_notices(self.models, self.request))
        yield from _say_once(notified, "tools", tool_notices(self.models, self.request))
        for _ in self.fit.check_length():
            yield NO_OUTPUT_YET
            if self.cancelled.is_set():
                break
        if self.cancelled.is_set():
            yield Finished("cancelled", self._totals())
            return
        prompt, shortened = self.fit.shortened_prompt()
        if shortened:
            yield Notice(shortened)
        if self.request.only_renders:
            yield TextDelta(prompt.rendered_prompt + self.request.answer_prefix)
            yield Finished("stop", self._totals())
            return
        limit, recalls = self.fit.max_new_tokens(prompt), self.models.profile.speculation.recall
        with self.texts.use(prompt.token_ids, self.question.owner, recalls) as self.text:
            yield from self._extend(self.text, prompt, limit)

    def _extend(self, text: DraftedText, prompt: NextPrompt, limit: int) -> Iterator[Event]:
        """Make the prompt the text, and decode the answer."""
        yield from map(Notice, text.take_faults())
        text.plain_baseline.start_answer()
        candidates = frozenset({PLAIN, *text.chooser.drafters})
        route = choose_route(self.request, self.models.profile, frozenset(text.drafters), candidates)
        yield Routed(route.variant, route.budget, route.reason, self.sampler.seed, self.fit.window)
        is_private = self.question.owner.is_private
        text.select_drafters(route.variant, AnswerTask(route.kind, route.drafter_order, is_private=is_private))
        cached = text.generation.replace_tokens(prompt.token_ids)
        turn = replace(
            Turn.of_request(self.request), prompt_ids=tuple(prompt.token_ids), rendered_prompt=prompt.rendered_prompt,
            seed=self.sampler.seed, model=self.models.profile.models.target,
        )  # fmt: skip
        rows, pool = text.generation.rows_needed(limit), self.models.target.pool
        for number, _ in enumerate(pool.wait_for_room(text.generation.cache, rows)):
            yield NO_OUTPUT_YET if number else Waiting("memory that other answers use")
            if self.cancelled.is_set():
                yield Finished("cancelled", self._totals())
                return
        with pool.acquire_slot(text.generation.cache, rows):
            reason = yield from self._run_turn(turn, route, limit, cached, prompt)
        yield from map(Notice, text.take_faults())
        yield Finished(reason, self._totals(), self._explanation(reason), self._repeated_characters)

    def _run_turn(
        self, turn: Turn, route: Route, limit: int, cached: int, prompt: NextPrompt
    ) -> Generator[Event, None, str]:
        """Run the turn and return its finish reason. It is stored also when the caller stops reading the events."""
        reason = "cancelled"
        try:
            yield from self._prefill(cached)
            if not self.cancelled.is_set():
                if self.request.answer_prefix:
                    yield TextDelta(self.request.answer_prefix)
                if self._drafted.drafters[route.variant] is self._drafted.chooser:
                    self.models.costs.calibrate(self._drafted.generation)
                reason = yield from self._decode(route, limit, opens_thought=prompt.opens_thought)
                self._probe_passes()
            self.models.save_learned()
        finally:
            self._answered = replace(
                turn, answer=self.parts.text, thinking=self.parts.thinking,
                answer_ids=tuple(self._drafted.generation.tokens[len(turn.prompt_ids) :]),
                tool_calls=tuple(self.parts.calls), is_finished=reason in ("stop", TOOL_CALLS),
            )  # fmt: skip
        return reason

    def _prefill(self, cached: int) -> Iterator[Event]:
        generation = self._drafted.generation
        total = len(generation.tokens)
        self.account.on_prompt(total, cached)
        # The first chunk takes its time, too; where all is cached, clients still learn how much that was.
        yield PrefillProgress(cached if cached < total - 1 else total, total, cached)
        if self.cancelled.is_set():
            return
        for processed in generation.prefill():
            yield PrefillProgress(processed + 1, total, cached)
            if self.cancelled.is_set():
                return
        self.account.on_prefilled()

    def _decode(self, route: Route, limit: int, *, opens_thought: bool) -> Generator[Event, None, str]:
        """Yield the events; return the finish reason."""
        generation, start = self._drafted.generation, len(self._drafted.generation.tokens)
        stream, detector = self._answer_stream(opens_thought=opens_thought), self._repetition_detector()
        config, is_stopped = self._generation_config(route, limit, detector, opens_thought=opens_thought), False
        for step in generation.decode(config):
            kept, self.repetition = detector.add_all(step.committed_tokens)
            decided = stream.push(kept[: max(len(kept) - detector.undecided_tokens, 0)])
            undecided = stream.push(kept[decided.token_count :])
            count, is_stopped = decided.token_count + undecided.token_count, undecided.is_stopped
            plain = self._drafted.plain_baseline.add_step(len(step.tree), count, step.verify_seconds)
            done = step_done(step, count, self.models.tokenizer.token_bytes, plain)
            self.account.add_step(done)
            yield done  # before its text: a reader of both has the tokens of a text with it
            yield from self._emit(decided, is_decided=decided.token_count > 0)
            yield from self._emit(undecided, is_decided=is_stopped)
            if is_stopped:
                generation.truncate(len(generation.tokens) - len(step.committed_tokens) + count)
                break
            if self.repetition:
                yield from self._cut_repeats(self.repetition, self._answer_stream(opens_thought=opens_thought), start)
                return REPETITION
            if self.cancelled.is_set():
                yield from self._emit(stream.flush())
                return "cancelled"
        yield from self._emit(stream.flush())
        is_ended = len(generation.tokens) > start and generation.tokens[-1] in self.models.tokenizer.stop_token_ids
        if not (is_stopped or is_ended):
            return "length"
        return TOOL_CALLS if self.parts.calls else "stop"

    def _answer_stream(self, *, opens_thought: bool) -> AnswerStream:
        return AnswerStream(
            self.models.tokenizer, self.request.stop, is_continuation=bool(self.request.answer_prefix),
            opens_thought=opens_thought, answer_tool=self.request.answer_tool,
            tool_schemas={tool.name: tool.schema for tool in self.request.offered_tools},
        )  # fmt: skip

    def _generation_config(
        self, route: Route, limit: int, detector: RepetitionDetector, *, opens_thought: bool
    ) -> GenerationConfig:
        grammar = grammar_within(limit, self.grammar, self.request, self.models, opens_thought=opens_thought)
        return GenerationConfig(
            self._drafted.drafters[route.variant], self.sampler, route.budget, limit,
            self.models.tokenizer.stop_token_ids, grammar, self.request.wants_probabilities,
            lambda: detector.is_in_run,
        )  # fmt: skip

    def _repetition_detector(self) -> RepetitionDetector:
        """A forced call is closed before its limit also when it repeats itself; stopped, it would be invalid."""
        is_call = self.request.forced_schemas and not self.request.answer_tool
        repeats = 0 if is_call else self.models.profile.limits.repeats
        turns = *self.turns, Turn.of_request(self.request)
        tokenizer = self.models.tokenizer
        return RepetitionDetector(repeats, partial(_is_copied, tokenizer, turns), partial(_end_quality, tokenizer))

    def _cut_repeats(self, repetition: Repetition, stream: AnswerStream, start: int) -> Iterator[Event]:
        """Make the answer what it would be if the model had stopped after the first block of what it repeats."""
        generation, kept = self._drafted.generation, repetition.kept_tokens
        unseen = sum(len(event.text) for event in self._undecided if isinstance(event, TextDelta))
        seen = self.parts.text[: len(self.parts.text) - unseen]
        generation.truncate(start + kept)
        self.parts, thinking_tokens = self._no_parts(), 0
        for piece in (stream.push(generation.tokens[start:]), stream.flush()):
            thinking_tokens += piece.thinking_tokens
            for _event in self.parts.add(piece):
                pass
        text_length = common_prefix_length(seen, self.parts.text)
        if text_length == len(seen) < len(self.parts.text):
            yield TextDelta(self.parts.text[text_length:])
        else:
            self.parts.cut_text(text_length)
            self._repeated_characters = len(seen) - text_length
        self.account.cut(kept, thinking_tokens)
        self._drafted.plain_baseline.cut(kept)

    def _no_parts(self) -> AnswerParts:
        return AnswerParts(self.request.answer_prefix, f"{self.sampler.seed} {len(self.question.turns)}")

    def _emit(self, streamed: StreamedParts, *, is_decided: bool = True) -> Iterator[Event]:
        """What was streamed, after what was undecided before it."""
        self._undecided += self.parts.add(streamed)
        if streamed.thinking_tokens:
            self.account.add_thinking(streamed.thinking_tokens)
        if is_decided:
            yield from self._undecided
            self._undecided.clear()

    def _probe_passes(self) -> None:
        """Measure passes that the comparison with plain decoding lacks; they are not committed."""
        text, costs = self._drafted, self.models.costs
        baseline, length = text.plain_baseline, len(text.generation.tokens)
        while not self.cancelled.is_set() and (rows := baseline.rows_to_probe()) is not None:
            seconds = text.generation.measure_pass(rows, self.sampler)
            baseline.add_probe(rows, seconds)
            costs.learn_pass(length, rows, seconds)

    def _explanation(self, reason: str) -> str:
        """What the user should know of this end of an answer; that the model is small, once in a conversation."""
        if reason == REPETITION:
            return EXPLANATION
        if reason != "cancelled" and self.parts.is_thought_alone:
            return "the answer ended inside its thinking; raise limits.answer, or set prompt.thinking_tokens lower"
        if reason != "length" or self.request.max_tokens or not is_small(self.models.profile.models):
            return ""
        sentence = too_small("write so long an answer", "ask for less at once")
        return next((each.text for each in _say_once(self.question.notified, reason, [sentence])), "")

    def _totals(self) -> Totals:
        plain = (self.text.plain_baseline.estimate() if self.text else None) or UNKNOWN_ESTIMATE
        return replace(
            self.account.totals(),
            plain_decode_seconds=plain.seconds,
            plain_decode_error=plain.error,
            is_exact=self.models.target.is_exact,
            estimates=self.text.chooser.describe_estimates() if self.text else "",
        )


def _say_once(notified: set[str], about: str, notices: Sequence[str]) -> Iterator[Notice]:
    """Tell what a conversation was not told before about something."""
    if notices and about not in notified:
        notified.add(about)
        yield from map(Notice, notices)


def _is_copied(tokenizer: Tokenizer, turns: Sequence[Turn], tokens: Sequence[int]) -> bool:
    """Whether a text of the user in these turns contains these tokens."""
    text = tokenizer.decode(tokens).strip("\ufffd")
    return any(
        text in given
        for turn in turns
        for given in (turn.user, *(file.text for file in turn.files), *(each.text for each in turn.tool_results))
    )


def _end_quality(tokenizer: Tokenizer, token: int) -> int:
    """How well a text can end behind a token: at the end of a line, or else of a sentence."""
    token_bytes = tokenizer.token_bytes(token)
    return 2 if token_bytes.endswith(b"\n") else int(token_bytes.endswith((b".", b"!", b"?")))


def thinking_notices(models: LoadedModels, request: Request) -> tuple[str, ...]:
    """That the model does not think, if it is told whether to think."""
    thinking, name = request.thinking or models.profile.prompt.thinking, models.profile.models.target
    if thinking == AUTO_THINKING or models.tokenizer.chat.thinking:
        return ()
    return (f"{name} does not think: its chat template has no thinking, so '{thinking}' changes nothing",)


def tool_notices(models: LoadedModels, request: Request) -> tuple[str, ...]:
    """If the request offers tools: that the model is too small for them, and that its chat template has none."""
    if not request.offered_tools:
        return ()
    sizes = (too_small("work with tools", "check what it calls"),) * is_small(models.profile.models)
    sizes += schema_notices({tool.name: tool.schema for tool in request.offered_tools})
    if models.tokenizer.chat.reads_tools:
        return sizes
    how = "and a grammar makes every answer a call or a text" if request.answer_tool else "in the form of Hermes"
    name = models.profile.models.target
    return *sizes, f"{name} has no template for tools: they are described in the system prompt, {how}"


def sampler_of(sampling: Sampling, models: LoadedModels, logit_bias: Sequence[TokenBias] = ()) -> Sampler:
    """The sampler of an answer. Each draws a new seed unless one is given."""
    vocab_size = min(models.tokenizer.vocab_size, models.target.vocab_size)
    check_token_ids([each.token_id for each in logit_bias], vocab_size)
    return Sampler(
        temperature=sampling.temperature,
        top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        frequency_penalty=sampling.frequency_penalty, presence_penalty=sampling.presence_penalty,
        seed=secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed,
        vocab_size=vocab_size, biases=tuple({each.token_id: each.bias for each in logit_bias}.items()),
    )  # fmt: skip
