"""An answer: a question with the turns before it in, events out.

It goes on from a text that the prefix cache has, with the drafters that follow this text. It knows no screen, no socket
and no file; of threads it knows only a watchdog, which may use fewer of them on a busy machine.
"""

import secrets
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Event as Flag
from time import perf_counter
from typing import Protocol

from specchat.chat.attachments import fenced_file
from specchat.chat.call_or_answer import with_answer_tool
from specchat.chat.compaction import shorten_results, shorten_turns
from specchat.chat.drafter_report import describe_drafters
from specchat.chat.edit_contract import as_answer_text, file_to_rewrite, with_edit_contract
from specchat.chat.events import (
    NO_OUTPUT_YET,
    REPETITION,
    TARGET,
    TOOL_CALLS,
    CommittedToken,
    Event,
    Failed,
    Finished,
    LikelyToken,
    Notice,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Totals,
)
from specchat.chat.plain_baseline import UNKNOWN_ESTIMATE, PlainBaseline, PlainEstimate
from specchat.chat.prompt import NextPrompt, as_read_by, build_next_prompt
from specchat.chat.reference_corpus import ReferenceCorpus
from specchat.chat.repetition import Repetition, RepetitionDetector
from specchat.chat.request import EDIT_TASKS, AnswerFormat, Request
from specchat.chat.router import Route, choose_route
from specchat.chat.tools import ToolCall
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.chooser.acceptance import PLAIN
from specchat.chooser.chooser import Chooser, ChooserState, DeviceLoad
from specchat.chooser.costs import Costs
from specchat.engine.cache import bucket_of
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import AnswerTask, Drafter
from specchat.engine.grammar import Grammar
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.stats import NO_DRAFTER, DecodingStats
from specchat.errors import ContextError, SpecchatError
from specchat.profile import Profile, Prompt
from specchat.text.answer_stream import AnswerStream, StreamedParts
from specchat.text.llguidance_grammar import json_schema_grammar, lark_grammar, regex_grammar
from specchat.text.thinking import TEXT, AnswerPart
from specchat.text.thinking_budget import make_thinking_budget
from specchat.text.tokenizer import AUTO_THINKING, Tokenizer
from specchat.text.tool_calls import TOOL_CALL
from specchat.text.tool_grammar import ThoughtThenAnswer, forced_call_grammar, free_call_grammar
from specchat.threads import ThreadWatchdog

SEED_BITS = 31
CALL_ID_BYTES = 12
THINKING_SHARE = 0.75  # of the tokens of an answer: a thought without a limit of its own leaves the rest for the text
ANSWER_SHARE = 0.25  # of the context window, which an answer in work with tools may need
COMPACTED_SHARE = 0.5  # of the context window, which a shortened conversation has, so that it is not soon full again
INDEX_BYTES_PER_TOKEN = 512  # of the text, for the Python objects in which drafters index it; 450 were measured
SHORTEN_HINT = "shorten the prompt, or raise limits.context if the model allows more"


@dataclass(frozen=True)
class LoadedModels:
    target: Model
    tokenizer: Tokenizer
    profile: Profile
    costs: Costs
    chooser_state: ChooserState
    reference_corpus: ReferenceCorpus | None = None
    notices: tuple[str, ...] = ()  # about the loaded models, for the first answer of each conversation


class DraftedText:
    """One text and the drafters that follow it, by variant; the chooser passes outcomes to its own.

    `faults` are those of plugins; they may be added from any thread.
    """

    def __init__(
        self, models: LoadedModels, drafters: Mapping[str, Drafter], chooser: Chooser, faults: deque[str] | None = None
    ) -> None:
        self.models, self.drafters, self.chooser = models, drafters, chooser
        self._faults = deque[str]() if faults is None else faults
        self.generation = Generation(models.target, (chooser,))
        self.plain_baseline = PlainBaseline(self._relative_pass_cost)

    def take_faults(self) -> tuple[str, ...]:
        """The faults of plugins, each once."""
        return tuple(self._faults.popleft() for _ in range(len(self._faults)))

    def select_drafters(self, variant: str, task: AnswerTask | None = None) -> None:
        """Let a drafter observe the text from now on, as those of the chooser do; other plugins hear nothing of it."""
        drafter, task = self.drafters[variant], task or AnswerTask()
        for each in self.drafters.values():
            each.start_answer(replace(task, is_selected=each is drafter or drafter is self.chooser))
        if drafter not in (*self.generation.drafters, *self.chooser.drafters.values()):
            self.generation.add_drafter(drafter)

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """Draft less while other requests wait for their next step, and nothing while `is_urgent`, for a completion."""
        self.chooser.device_load = DeviceLoad(waiting_requests, is_urgent)

    def close(self) -> None:
        self.generation.close()
        for drafter in self.drafters.values():
            drafter.close()

    def memory_bytes(self) -> dict[str, int]:
        """The bytes that this text holds: its KV cache, and what its drafters keep."""
        own = {id(each): each for each in self.drafters.values() if each is not self.chooser}
        states = sum(drafter.memory_bytes() for drafter in own.values())
        indexes = INDEX_BYTES_PER_TOKEN * len(self.generation.tokens)
        return {"kv_cache": self.models.target.pool.bytes_of(self.generation.cache), "drafters": states + indexes}

    def _relative_pass_cost(self, rows: int) -> float:
        return self.models.costs.relative_pass_cost(len(self.generation.tokens), rows)


class Texts(Protocol):
    """Where an answer finds the text that it extends, such as `PrefixCache`."""

    def use(self, tokens: list[int], owner: TextOwner, form: bool) -> AbstractContextManager[DraftedText]: ...


class Session(DraftedText, AbstractContextManager["Session"]):
    """A conversation of this process: it keeps its turns, and a text that it shares with no other."""

    def __init__(
        self,
        models: LoadedModels,
        drafters: Mapping[str, Drafter],
        chooser: Chooser,
        turns: Sequence[Turn] = (),
        faults: deque[str] | None = None,
        watchdog: ThreadWatchdog | None = None,
    ) -> None:
        super().__init__(models, drafters, chooser, faults)
        self.turns, self.watchdog, self._notified = list(turns), watchdog, set[str]()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time. Set `cancelled` from any thread to end within a step; a partial answer stays."""
        try:
            request = Request(request) if isinstance(request, str) else request
            question = Question(request, tuple(self.turns), self.models.profile, notified=self._notified)
            answer = RunningAnswer(self.models, self, question, cancelled or Flag(), self.watchdog)
            try:
                yield from answer.events()
            finally:
                self.turns = list(answer.turns)
        except SpecchatError as error:
            yield Failed.from_error(error)

    @contextmanager
    def use(self, tokens: list[int], owner: TextOwner, form: bool) -> Generator[DraftedText]:
        yield self

    def rewind(self, count: int = 1) -> list[Turn]:
        """Remove and return the last turns, to edit a question or to sample another answer."""
        remaining = max(len(self.turns) - count, 0)
        removed, self.turns = self.turns[remaining:], self.turns[:remaining]
        return removed


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
        self.turns, self._watchdog = question.turns, watchdog
        self.start_time = perf_counter()
        self.profile = models.profile
        request = with_edit_contract(question.request, self.turns, self.profile.prompt)
        self.request = request = with_answer_tool(
            request, self.turns, self.profile.agent, reads_tools=models.tokenizer.reads_tools
        )
        self.window = min(self.profile.limits.context, models.target.context_window)
        self.sampler = _sampler(request, models)
        self.grammar = _grammar(request.answer_format, models)
        self.stats, self.totals = DecodingStats(), Totals()
        self.thinking = _thinking_of(request, self.profile.prompt)
        self.text: DraftedText | None = None  # while it is computed
        self.text_pieces = [request.answer_prefix] if request.answer_prefix else []
        self.thinking_pieces: list[str] = []
        self.calls: list[ToolCall] = []
        self.repetition: Repetition | None = None

    def events(self) -> Iterator[Event]:
        """The events; SpecchatError when there is no answer."""
        with self._watchdog.answering() if self._watchdog else nullcontext():
            for event in self._events():
                if self._watchdog and isinstance(event, StepDone):
                    kind = bucket_of(len(self._drafted.generation.tokens)), len(event.draft_tokens)
                    self._watchdog.record_pass(kind, event.verify_seconds)
                yield event

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """As that of its text, once there is one."""
        if self.text is not None:
            self.text.set_load(waiting_requests, is_urgent=is_urgent)

    @property
    def _drafted(self) -> DraftedText:
        assert self.text is not None, "the answer has no text yet"
        return self.text

    def _events(self) -> Iterator[Event]:
        yield from self._say_once("models", self.models.notices)
        thinking = self.request.thinking or self.profile.prompt.thinking
        yield from self._say_once("thinking", self._thinking_notices(thinking))
        yield from self._say_once("tools", self._tool_notices())
        yield from self._check_length()
        if self.cancelled.is_set():
            yield Finished("cancelled", self._totals())
            return
        prompt = self._next_prompt()
        if self.request.compacts and self._excess_tokens(prompt) > 0:
            before = len(prompt.token_ids)
            if what := self._make_room(before):
                prompt = self._next_prompt()
                left_out = f"{before - len(prompt.token_ids):,} of {before:,} tokens left out"
                yield Notice(f"the context window was full: {what} shortened; {left_out}, which the history keeps")
        limit = self._max_new_tokens(len(prompt.token_ids))
        form = self.profile.speculation.recall
        with self.texts.use(prompt.token_ids, self.question.owner, form) as self.text:
            yield from self._extend(self.text, prompt, limit)

    def _extend(self, text: DraftedText, prompt: NextPrompt, limit: int) -> Iterator[Event]:
        """Make the prompt the text, and decode the answer."""
        yield from map(Notice, text.take_faults())
        text.plain_baseline.start_answer()
        candidates = frozenset({PLAIN, *text.chooser.drafters})
        route = choose_route(self.request, self.profile, frozenset(text.drafters), candidates)
        yield Routed(route.variant, route.budget, route.reason, self.sampler.seed, self.window)
        answer_start = len(prompt.token_ids) - prompt.answer_prefix_length
        text.select_drafters(route.variant, self._task_of_drafters(route, answer_start))
        cached = text.generation.replace_tokens(prompt.token_ids)
        turn = replace(
            Turn.of_request(self.request), prompt_ids=tuple(prompt.token_ids), rendered_prompt=prompt.rendered_prompt,
            seed=self.sampler.seed, model=self.profile.models.target,
        )  # fmt: skip
        rows = text.generation.rows_needed(limit)
        with self.models.target.pool.acquire_slot(text.generation.cache, rows):
            reason = yield from self._run_turn(turn, route, limit, cached, prompt)
        yield from map(Notice, text.take_faults())
        yield Finished(reason, self._totals(), self._explanation(reason))

    def _say_once(self, about: str, notices: Sequence[str]) -> Iterator[Event]:
        """Tell what this conversation was not told before about something."""
        if notices and about not in self.question.notified:
            self.question.notified.add(about)
            yield from map(Notice, notices)

    def _thinking_notices(self, thinking: str) -> tuple[str, ...]:
        """That the model does not think, if it is told whether to think."""
        if thinking == AUTO_THINKING or self.models.tokenizer.thinking:
            return ()
        name = self.profile.models.target
        return (f"{name} does not think: its chat template has no thinking, so '{thinking}' changes nothing",)

    def _tool_notices(self) -> tuple[str, ...]:
        """That the chat template has no tools, if the request offers some."""
        if not self.request.offered_tools or self.models.tokenizer.reads_tools:
            return ()
        how = (
            "and a grammar makes every answer a call or a text" if self.request.answer_tool else "in the form of Hermes"
        )
        name = self.profile.models.target
        return (f"{name} has no template for tools: they are described in the system prompt, {how}",)

    def _next_prompt(self) -> NextPrompt:
        models, turns = self.models, as_read_by(self.profile.models.target, self.turns)
        system = self.profile.system_prompt(self.request.task)
        return build_next_prompt(models.tokenizer, system, turns, self.request, models.reference_corpus, self.thinking)

    def _excess_tokens(self, prompt: NextPrompt) -> int:
        """How many tokens the prompt has too many, so that an answer has room after it."""
        answer = min(self.request.max_tokens or self.profile.limits.answer, int(self.window * ANSWER_SHARE))
        return len(prompt.token_ids) + answer - self.window

    def _make_room(self, prompt_tokens: int) -> str:
        """Shorten what the model reads of earlier rounds, and if need be the results of now; says what, if anything."""
        count = lambda text: len(self.models.tokenizer.encode(text))
        shortened = shorten_turns(self.turns, prompt_tokens - int(self.window * COMPACTED_SHARE), count)
        self.turns = shortened.turns
        counted = ("the tool results of {} earlier turn", shortened.results), ("{} earlier answer", shortened.answers)
        parts = [f"{text.format(number)}{'' if number == 1 else 's'}" for text, number in counted if number]
        if self.request.tool_results and (missing := self._excess_tokens(self._next_prompt())) > 0:
            tokens = sum(count(result.text) for result in self.request.tool_results)
            results = shorten_results(self.request.tool_results, tokens - missing, count)
            parts += ["the last tool results"] if results != self.request.tool_results else []
            self.request = replace(self.request, tool_results=results)
        return " and ".join(parts)

    def _explanation(self, reason: str) -> str:
        if self.repetition and reason == REPETITION:
            return self.repetition.describe()
        if reason != "cancelled" and self.thinking_pieces and not (self.text_pieces or self.calls):
            return "the answer ended inside its thinking; raise limits.answer, or set prompt.thinking_tokens lower"
        return ""

    def _check_length(self) -> Iterator[Event]:
        """Refuse a question that is far too long before all of it is tokenized, which takes seconds for a megabyte."""
        results = () if self.request.compacts else self.request.tool_results  # which are shortened if need be
        texts = self.request.text, *(fenced_file(file) for file in self.request.files), *(each.text for each in results)
        text = "".join(texts)
        for count in self.models.tokenizer.count_in_pieces(text):
            if count > self.window:
                raise ContextError(
                    f"the question has {len(text)} characters, which are more than {self.window} tokens, and the "
                    f"context window has {self.window}; {SHORTEN_HINT}"
                )
            yield NO_OUTPUT_YET
            if self.cancelled.is_set():
                return

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
            self.models.costs.save()
        finally:
            answered = replace(
                turn, answer="".join(self.text_pieces), thinking="".join(self.thinking_pieces),
                answer_ids=tuple(self._drafted.generation.tokens[len(turn.prompt_ids) :]),
                tool_calls=tuple(self.calls), is_finished=reason in ("stop", TOOL_CALLS),
            )  # fmt: skip
            self.turns = (*self.turns, answered)
        return reason

    def _prefill(self, cached: int) -> Iterator[Event]:
        generation = self._drafted.generation
        total = len(generation.tokens)
        self.totals = Totals(prompt_tokens=total, cached_tokens=cached)
        for processed in generation.prefill():
            yield PrefillProgress(processed + 1, total, cached)
            if self.cancelled.is_set():
                return
        self.totals = replace(self.totals, prefill_seconds=perf_counter() - self.start_time)

    def _decode(self, route: Route, limit: int, *, opens_thought: bool) -> Generator[Event, None, str]:
        """Yield the events; return the finish reason."""
        models, generation = self.models, self._drafted.generation
        start = len(generation.tokens)
        is_continuation = bool(self.request.answer_prefix)
        stream = AnswerStream(
            models.tokenizer, self.request.stop, is_continuation=is_continuation, opens_thought=opens_thought,
            tool_schemas={tool.name: tool.schema for tool in self.request.offered_tools},
            answer_tool=self.request.answer_tool,
        )  # fmt: skip
        if self.grammar is None:
            self.grammar = self._thinking_and_call_grammar(limit, opens_thought=opens_thought)
        drafter = self._drafted.drafters[route.variant]
        config = GenerationConfig(
            drafter, self.sampler, route.budget, limit, models.tokenizer.stop_token_ids, self.grammar,
            self.request.wants_probabilities,
        )  # fmt: skip
        # A forced call is closed before its limit also when it repeats itself; stopped, it would be invalid.
        is_call = self.request.forced_schemas and not self.request.answer_tool
        repeats = 0 if is_call else self.profile.limits.repeats
        detector = RepetitionDetector(repeats, self._is_copied)
        for step in generation.decode(config):
            if not self.stats.steps:
                self.totals = replace(self.totals, ttft_seconds=perf_counter() - self.start_time)
            kept = self._tokens_before_repetition(step.committed_tokens, detector)
            piece = stream.push(kept)
            self.stats.add(step, piece.token_count)
            plain = self._compare_with_plain(step, piece.token_count)
            yield from self._emit(piece)
            yield _step_done(step, piece.token_count, models.tokenizer, plain)
            if piece.is_stopped:
                generation.truncate(len(generation.tokens) - len(step.committed_tokens) + piece.token_count)
                return TOOL_CALLS if self.calls else "stop"
            if self.repetition:
                generation.truncate(len(generation.tokens) - len(step.committed_tokens) + len(kept))
                yield from self._emit(stream.flush())
                return REPETITION
            if self.cancelled.is_set():
                yield from self._emit(stream.flush())
                return "cancelled"
        yield from self._emit(stream.flush())
        is_ended = len(generation.tokens) > start and generation.tokens[-1] in models.tokenizer.stop_token_ids
        if not is_ended:
            return "length"
        return TOOL_CALLS if self.calls else "stop"

    def _thinking_and_call_grammar(self, limit: int, *, opens_thought: bool) -> Grammar | None:
        """The limit of the thought, and behind it the call that the request forces; None without either."""
        tokenizer, schemas = self.models.tokenizer, self.request.forced_schemas
        columns = max(tokenizer.vocab_size, self.models.target.vocab_size)
        limit_of_thought = self.profile.prompt.thinking_tokens or int(limit * THINKING_SHARE)
        thought = make_thinking_budget(
            tokenizer, limit_of_thought, columns, is_open=opens_thought, text_follows=not schemas
        )
        if not schemas:
            offered = {tool.name: tool.schema for tool in self.request.offered_tools}
            return (free_call_grammar(tokenizer, offered, columns, thought) if offered else None) or thought
        may_think = thought is not None and (opens_thought or self.thinking != "off")
        limit_of_call, is_lenient = max(1, limit - limit_of_thought * may_think), bool(self.request.answer_tool)
        call = forced_call_grammar(tokenizer, schemas, columns, limit_of_call, is_lenient=is_lenient)
        if thought is None or not may_think:
            return call
        opening = tokenizer.encode_continuation(tokenizer.thinking.opening.rstrip()) if tokenizer.thinking else []
        return ThoughtThenAnswer(thought, opening, call, tokenizer.stop_token_ids)

    def _tokens_before_repetition(self, tokens: Sequence[int], detector: RepetitionDetector) -> Sequence[int]:
        """The committed tokens up to the one that completes a repetition: a drafter may have proposed more of it."""
        for number, token in enumerate(tokens, 1):
            if repetition := detector.add(token):
                self.repetition = repetition
                return tokens[:number]
        return tokens

    def _is_copied(self, tokens: Sequence[int]) -> bool:
        """Whether a text of the user, here or earlier in the conversation, contains these tokens."""
        text = self.models.tokenizer.decode(tokens).strip("\ufffd")
        asked = Turn.of_request(self.request)
        return any(
            text in given
            for turn in (*self.turns, asked)
            for given in (turn.user, *(file.text for file in turn.files), *(each.text for each in turn.tool_results))
        )

    def _emit(self, streamed: StreamedParts) -> Iterator[Event]:
        for part in streamed.parts:
            if part.kind == TOOL_CALL:
                yield from self._emit_call(part)
            else:
                (self.text_pieces if part.kind == TEXT else self.thinking_pieces).append(part.text)
                yield TextDelta(part.text) if part.kind == TEXT else ThinkingDelta(part.text)
        if streamed.thinking_tokens:
            seconds = perf_counter() - self.start_time - self.totals.ttft_seconds
            tokens = self.totals.thinking_tokens + streamed.thinking_tokens
            self.totals = replace(self.totals, thinking_tokens=tokens, thinking_seconds=seconds)

    def _emit_call(self, part: AnswerPart) -> Iterator[Event]:
        if part.call_name:
            self.calls.append(ToolCall(self._new_call_id(), part.call_name, ""))
            yield ToolCallDelta(part.call_index, self.calls[-1].id, part.call_name)
        if part.text:
            call = self.calls[-1] = replace(self.calls[-1], arguments=self.calls[-1].arguments + part.text)
            yield ToolCallDelta(part.call_index, call.id, arguments=part.text)

    def _new_call_id(self) -> str:
        """Another one for each call of a conversation. It follows from the seed, because templates may show it."""
        place = f"{self.sampler.seed} {len(self.turns)} {len(self.calls)}"
        return f"call_{blake2b(place.encode(), digest_size=CALL_ID_BYTES).hexdigest()}"

    def _max_new_tokens(self, prompt_tokens: int) -> int:
        if self.window <= prompt_tokens:
            raise ContextError(
                f"the prompt has {prompt_tokens} tokens and the context window has {self.window}; {SHORTEN_HINT}"
            )
        return min(self.request.max_tokens or self.profile.limits.answer, self.window - prompt_tokens)

    def _task_of_drafters(self, route: Route, answer_start: int) -> AnswerTask:
        tokenizer, file = self.models.tokenizer, file_to_rewrite(self.request, self.turns)
        original = tokenizer.escape_control_tokens(as_answer_text(file)) if file else ""
        tokens = tokenizer.encode_continuation(original)
        return AnswerTask(route.kind, route.drafter_order, tokens, answer_start)

    def _compare_with_plain(self, step: Step, token_count: int) -> PlainEstimate:
        """The time of plain decoding for the tokens of a step; 0 when unknown."""
        baseline, rows = self._drafted.plain_baseline, len(step.tree)
        baseline.add_step(rows, token_count, step.verify_seconds)
        return baseline.step_estimate(rows, token_count, step.verify_seconds) or UNKNOWN_ESTIMATE

    def _probe_passes(self) -> None:
        """Measure passes that the comparison with plain decoding lacks; they are not committed."""
        text, costs = self._drafted, self.models.costs
        baseline, length = text.plain_baseline, len(text.generation.tokens)
        while not self.cancelled.is_set() and (rows := baseline.rows_to_probe()) is not None:
            seconds = text.generation.measure_pass(rows, self.sampler)
            baseline.add_probe(rows, seconds)
            costs.learn_pass(length, rows, seconds)

    def _totals(self) -> Totals:
        plain = (self.text.plain_baseline.estimate() if self.text else None) or UNKNOWN_ESTIMATE
        return replace(
            with_stats(self.totals, self.stats),
            plain_decode_seconds=plain.seconds,
            plain_decode_error=plain.error,
            is_exact=self.models.target.is_exact,
            drafter_report=describe_drafters(self.stats.by_drafter),
            estimates=self.text.chooser.describe_estimates() if self.text else Totals().estimates,
        )


def with_stats(totals: Totals, stats: DecodingStats) -> Totals:
    return replace(
        totals, completion_tokens=stats.tokens, steps=stats.steps, draft_tokens=stats.drafted,
        accepted_by_drafter=dict(stats.accepted_by_drafter),
        steps_by_drafter={name: each.steps for name, each in stats.by_drafter.items() if name != NO_DRAFTER},
        draft_seconds=stats.draft_seconds, verify_seconds=stats.verify_seconds,
    )  # fmt: skip


def _thinking_of(request: Request, prompt: Prompt) -> str:
    """Whether the model thinks before this answer; not where its beginning or its form is given, as that of an edit."""
    if request.answer_prefix or request.answer_format or request.task in EDIT_TASKS:
        return "off"
    return request.thinking or prompt.thinking


def _sampler(request: Request, models: LoadedModels) -> Sampler:
    """The sampler of this turn. Each turn draws a new seed unless one is given."""
    sampling, speculation = request.sampling(models.profile.sampling), models.profile.speculation
    return Sampler(
        temperature=sampling.temperature,
        top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        frequency_penalty=sampling.frequency_penalty, presence_penalty=sampling.presence_penalty,
        seed=secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed,
        vocab_size=min(models.tokenizer.vocab_size, models.target.vocab_size),
        uses_rejection_sampling=speculation.acceptance_test == "rejection_sampling" and not speculation.exact,
    )  # fmt: skip


def _grammar(answer_format: AnswerFormat | None, models: LoadedModels) -> Grammar | None:
    if answer_format is None:
        return None
    tokenizer = models.tokenizer
    columns = max(tokenizer.vocab_size, models.target.vocab_size)
    match answer_format.kind:
        case "schema":
            make_grammar, text = json_schema_grammar, answer_format.text
        case "lark":
            make_grammar, text = lark_grammar, answer_format.text
        case _:
            make_grammar, text = regex_grammar, answer_format.regex
    return make_grammar(text, tokenizer.folder, columns, tokenizer.stop_token_ids)


def _step_done(step: Step, token_count: int, tokenizer: Tokenizer, plain: PlainEstimate) -> StepDone:
    sources = [*step.accepted_sources, TARGET]
    committed = tuple(
        CommittedToken(token, tokenizer.token_bytes(token), source)
        for token, source in zip(step.committed_tokens[:token_count], sources[:token_count], strict=True)
    )
    if step.probabilities:
        committed = tuple(
            replace(
                token, probability=known.committed,
                likeliest=tuple(LikelyToken(tokenizer.token_bytes(id), share) for id, share in known.likeliest),
            )
            for token, known in zip(committed, step.probabilities[:token_count], strict=True)
        )  # fmt: skip
    draft_tokens = tuple(step.tree.tokens[1:])
    return StepDone(
        draft_tokens, tuple(step.tree.parents[1:]), committed, step.draft_seconds, step.verify_seconds,
        draft_token_bytes=tuple(map(tokenizer.token_bytes, draft_tokens)), draft_sources=tuple(step.tree.sources[1:]),
        plain_seconds=plain.seconds, plain_error=plain.error,
    )  # fmt: skip
