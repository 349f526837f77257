"""Completion of a gap or of a whole prompt: no conversation, no chat template; greedy unless the request samples.

A model with fill-in-the-middle (FIM) tokens fills the gap; any other model continues the text before it. Successive
requests are mostly about the same file, so one generation stays and only its tokens are replaced: the text before the
cursor is prefilled once. The chooser decides what drafts, and how much: a pass over many draft tokens can take longer
than the accepted ones save.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from threading import Event as Flag
from time import perf_counter

from specchat.chat.answer_account import AnswerAccount, step_done, tokens_with_bytes
from specchat.chat.answer_grammar import raw_grammar
from specchat.chat.drafted_text import LoadedModels
from specchat.chat.events import NO_OUTPUT_YET, Event, Finished, PrefillProgress, PromptTokens, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.router import KIND_DEFAULTS
from specchat.chat.running_answer import sampler_of
from specchat.chooser.acceptance import PLAIN
from specchat.chooser.chooser import Chooser
from specchat.engine.cache import KVCache
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import AnswerTask, Drafter
from specchat.engine.probabilities import TokenProbabilities, token_probabilities
from specchat.engine.tree import DraftTree
from specchat.text.detokenize import Detokenizer, StopStrings
from specchat_completions.fim_tokens import (
    Continuation,
    GapPrompt,
    find_fim_tokens,
    is_at_line_end,
    is_block_over,
    raw_prompt,
)

TASK_KIND = "completion"  # for what the chooser learns
DRAFTER_ORDER = KIND_DEFAULTS["code"].drafter_order
SCORED_ROWS = 64  # of a pass that reads the probabilities of a given text
INSIDE_LINE = "inside_line"  # the finish reason where a model without FIM tokens has nothing to say
NO_FIM_TOKENS = (
    "the model has no fill-in-the-middle tokens: completions continue the text before the cursor, at line ends"
)


class FimCompleter:
    """Fills gaps, one after the other, and reuses the KV cache for the next one."""

    def __init__(self, models: LoadedModels, drafters: Mapping[str, Drafter]) -> None:
        self.models = models
        self.fim_tokens = find_fim_tokens(models.tokenizer)
        self.prompts = self.fim_tokens or Continuation(models.tokenizer)
        self.chooser = Chooser(drafters, models.costs, models.chooser_state)
        variant = models.profile.speculation.variant
        self.drafter = Drafter() if variant == PLAIN else drafters.get(variant, self.chooser)
        self.generation = Generation(models.target, (self.drafter,))

    @property
    def explanation(self) -> str:
        """What the user should know about these completions; "" for a model that fills gaps."""
        return "" if self.fim_tokens else NO_FIM_TOKENS

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Fill the gap, one event at a time. Set `cancelled` from any thread to end within a step."""
        models, account, deadline = self.models, AnswerAccount(), _Deadline(request.timeout_seconds, cancelled)
        window = min(models.profile.limits.context, models.target.context_window)
        limit = min(request.max_tokens, window // 2)
        if self.fim_tokens is None and not request.is_raw and not is_at_line_end(request):
            yield Finished(INSIDE_LINE, Totals(), self.explanation)
            return
        room = window - limit if limit or request.wants_probabilities else request.max_context_tokens
        prompt = (
            raw_prompt(models.tokenizer, request, room) if request.is_raw else self.prompts.build_prompt(request, room)
        )
        if request.echoes:
            ids = sorted(self.prompts.end_token_ids) if request.echoes_ends else prompt.token_ids
            yield from self._echo(ids, request, deadline)
            if not limit or deadline.end_reason():
                yield Finished(deadline.end_reason() or "length", Totals(prompt_tokens=len(prompt.token_ids)))
                return
        if not prompt.token_ids:
            yield Finished("stop", Totals(), self.explanation)
            return
        prompt_tokens = len(prompt.token_ids)
        cached = self.generation.replace_tokens(prompt.token_ids)
        account.on_prompt(prompt_tokens, cached)
        rows, pool = self.generation.rows_needed(limit), models.target.pool
        yield from self._wait_for_room(self.generation.cache, rows, deadline)
        if reason := deadline.end_reason():
            yield Finished(reason, Totals(), self.explanation)
            return
        with pool.acquire_slot(self.generation.cache, rows):
            for processed in self.generation.prefill():
                yield PrefillProgress(processed + 1, prompt_tokens, cached)
                if reason := deadline.end_reason():
                    yield Finished(reason, Totals(), self.explanation)
                    return
            if self.drafter is self.chooser:
                self.chooser.start_answer(AnswerTask(TASK_KIND, DRAFTER_ORDER, is_private=False))
                models.costs.calibrate(self.generation)
            account.on_prefilled()
            reason = yield from self._decode(prompt, request, limit, account, deadline)
            models.save_learned()
            yield Finished(reason, account.totals(), self.explanation)

    def _echo(self, ids: list[int], request: FimRequest, deadline: _Deadline) -> Iterator[Event]:
        """The prompt itself, with the probabilities of its tokens if they are wanted."""
        tokenizer, known = self.models.tokenizer, list[TokenProbabilities | None]([None])
        if request.wants_probabilities and ids:
            generation, pool, rows = Generation(self.models.target), self.models.target.pool, len(ids) + SCRATCH_ROWS
            yield from self._wait_for_room(generation.cache, rows, deadline)
            if deadline.end_reason():
                return
            with closing(generation), pool.acquire_slot(generation.cache, rows):
                for scored in _scores(generation, ids, min(tokenizer.vocab_size, self.models.target.vocab_size)):
                    known += scored
                    yield PrefillProgress(len(known), len(ids))
                    if deadline.end_reason():
                        return
        stream = tokenizer.detokenizer(shown_markers=tokenizer.special_token_ids)
        tokens = tokens_with_bytes(ids, ["prompt"] * len(ids), known, tokenizer.token_bytes)
        yield PromptTokens(request.prefix or stream.push(ids) + stream.flush(), tokens)

    def _wait_for_room(self, cache: KVCache, rows: int, deadline: _Deadline) -> Iterator[Event]:
        """Until the cache has room for so many rows, or the completion is to end."""
        for _ in self.models.target.pool.wait_for_room(cache, rows, is_urgent=True):
            yield NO_OUTPUT_YET
            if deadline.end_reason():
                return

    def close(self) -> None:
        self.generation.close()

    def _decode(
        self, prompt: GapPrompt, request: FimRequest, limit: int, account: AnswerAccount, deadline: _Deadline
    ) -> Generator[Event, None, str]:
        """Yield the events; return the finish reason. The text stays until it can begin no stop text."""
        tokenizer, text, stops = self.models.tokenizer, "", StopStrings(request.stop)
        end_token_ids = self.prompts.end_token_ids
        stream = Detokenizer(lambda token: b"" if token in end_token_ids else tokenizer.token_bytes(token))
        sampler = sampler_of(request.sampling, self.models, request.logit_bias)
        to_repeat = prompt.repeated_text
        budget = self.models.profile.speculation.budget
        grammar = raw_grammar(request.answer_format, limit, self.models) if request.answer_format else None
        config = GenerationConfig(
            self.drafter, sampler, budget, limit, end_token_ids, grammar, request.wants_probabilities
        )
        for step in self.generation.decode(config):
            pieces = [stream.push([token]) for token in step.committed_tokens]
            if to_repeat and (new_text := "".join(pieces)):
                if not new_text.startswith(to_repeat):
                    account.add_step(step_done(step, len(pieces), tokenizer.token_bytes))
                    return "stop"  # the text before the gap is not continued
                pieces, to_repeat = _without_beginning(pieces, len(to_repeat)), ""
            text += "".join(pieces)
            released, token_count = _push_until_stop(stops, pieces)
            account.add_step(done := step_done(step, token_count, tokenizer.token_bytes))
            yield done
            if released:
                yield TextDelta(released)
            if stops.is_found:
                return "stop"
            if reason := self._end_reason(step.committed_tokens[-1] in end_token_ids, text, request) or (
                deadline.end_reason()
            ):
                break
        else:
            reason = "length"
        if held_back := stops.flush():
            yield TextDelta(held_back)
        return reason

    def _end_reason(self, is_ended: bool, text: str, request: FimRequest) -> str:
        """The finish reason; "" to continue."""
        if is_ended:
            return "stop"
        if request.max_lines and text.lstrip("\n").count("\n") >= request.max_lines:
            return "lines"
        is_open = self.fim_tokens is not None or request.is_raw
        return "" if is_open or not is_block_over(request.prefix, text) else "block"


def _scores(generation: Generation, ids: Sequence[int], vocab_size: int) -> Iterator[tuple[TokenProbabilities, ...]]:
    """Make these tokens the text and yield the probabilities of all but the first; no drafter hears of them."""
    generation.replace_tokens(list(ids[:1]))
    while following := list(ids[len(generation.tokens) :][: min(SCORED_ROWS, generation.target.max_rows)]):
        tree = DraftTree(generation.tokens[-1])
        tree.add_chain(following[:-1])
        path, logits = list(range(len(tree))), generation.target.forward(tree, generation.cache).logits
        generation.cache.commit(path)
        generation.tokens += following
        yield token_probabilities(logits, path, following, vocab_size)


def _without_beginning(pieces: Sequence[str], length: int) -> list[str]:
    """The pieces of a text without its first characters."""
    rest = list[str]()
    for piece in pieces:
        rest.append(piece[length:])
        length = max(0, length - len(piece))
    return rest


def _push_until_stop(stops: StopStrings, pieces: Sequence[str]) -> tuple[str, int]:
    """The text that these pieces release, and how many of them count. One at a time: blocks cannot change the text."""
    released = list[str]()
    for piece in pieces:
        released.append(stops.push(piece))
        if stops.is_found:
            break
    return "".join(released), len(released)


class _Deadline:
    def __init__(self, seconds: float, cancelled: Flag) -> None:
        self.expires_at = perf_counter() + seconds if seconds else float("inf")
        self.cancelled = cancelled

    def end_reason(self) -> str:
        """The finish reason; "" to continue."""
        if self.cancelled.is_set():
            return "cancelled"
        return "timeout" if perf_counter() > self.expires_at else ""
