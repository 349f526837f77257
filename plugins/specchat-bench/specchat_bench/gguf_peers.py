"""Our engine beside llama.cpp on the same GGUF file: chats, code, edits, the prefill of prompts, and wider passes.

Both compute on the CPU, greedily, and with as many threads; several numbers of threads take turns, prompt by prompt.
This file knows neither the library of llama.cpp nor the command line, nor how the result is shown
(`gguf_peers_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Protocol

import torch

from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.chooser.chooser import ChooserState
from specchat.chooser.costs import Costs
from specchat.engine.drafter import Drafter
from specchat.errors import InputError
from specchat.hub.find_models import find_local_model
from specchat.loading.load_engine import DEFAULT_THREADS, Engine
from specchat.profile.keys import BUILTIN_BACKEND, Profile
from specchat.threads import ThreadWatchdog
from specchat.weights.gguf.gguf_sources import local_gguf
from specchat_bench.builtin_prompts import WARM_UP_REQUESTS
from specchat_bench.chain_passes import MedianRange, chain_pass_seconds, random_context
from specchat_bench.combinations import AUTO, PLAIN
from specchat_bench.compared_engines import (
    PairedRuns,
    cut_or_repeat,
    run_pair,
    specchat_contender,
)
from specchat_bench.latency import time_answer
from specchat_bench.llama_cpp import GenerateFunction, LlamaCppLimits, TimedRun
from specchat_bench.measure import Progress, requests_by_kind
from specchat_bench.tokenized_prompts import TokenizedPrompt, tokenize_prompts

KINDS = ("chat", "code", "edit")  # of built-in prompts, in the order of the rows
PREFILL_LENGTHS = (512, 4096)  # tokens of a prompt that is only prefilled
MAX_PREFILL_PROMPTS = 1  # of each length: the prefill takes as long for every text
PASS_ROWS = (8, 16)  # of the passes whose cost is compared
PASS_CONTEXT = 128  # tokens in the KV cache before such a pass
PASS_ROUNDS = 9
COMPARABLE_SETTINGS: Mapping[str, object] = {
    "models.device": "cpu", "models.backend": BUILTIN_BACKEND, "models.dtype": "auto", "models.weights": "auto",
    "sampling.temperature": 0.0, "sampling.repetition_penalty": 1.0, "sampling.frequency_penalty": 0.0,
    "sampling.presence_penalty": 0.0, "limits.repeats": 0,
}  # fmt: skip


@dataclass(frozen=True)
class ComparedPrompt:
    """One prompt of a row: plain decoding and `auto` against the same two runs of llama.cpp.

    A prompt that is only prefilled has no `auto`, because nothing is drafted then, and `prefill_tokens`.
    """

    threads: int
    task: str  # the kind of the prompt, or "prefill 512"
    plain: PairedRuns
    auto: PairedRuns | None = None
    prefill_tokens: int = 0

    @property
    def has_same_text(self) -> bool:
        return all(pair.is_identical for pair in (self.plain, self.auto) if pair is not None)

    def tokens_per_second(self, runs: Sequence[TimedRun]) -> float:
        """Of all runs together: generated tokens, or those of a prompt that was only prefilled."""
        tokens = sum(self.prefill_tokens or len(run.tokens) for run in runs)
        return tokens / max(sum(run.seconds for run in runs), 1e-9)


@dataclass(frozen=True)
class ComparedPassCost:
    """c(M) of both: seconds of a pass over so many rows, by those of a pass over one row in the same round."""

    threads: int
    row_count: int
    ours: MedianRange
    theirs: MedianRange
    ratio: MedianRange  # theirs by ours; above 1 ours is cheaper


class LlamaCpp(Protocol):
    """What is compared with (`llama_cpp.LlamaCppModel`). It computes with as many threads as torch."""

    def generate(self, prompt: list[int], max_tokens: int) -> TimedRun: ...

    def prefill(self, tokens: Sequence[int]) -> None: ...

    def pass_seconds(self, context: int, tokens: Sequence[int]) -> float: ...


@dataclass(frozen=True)
class GgufBench:
    """The comparisons of one engine. `prompts` are those of each kind, and answers have at most `max_tokens`."""

    engine: Engine
    prompts: Mapping[str, Sequence[TokenizedPrompt]]
    max_tokens: int

    @property
    def llama_cpp_limits(self) -> LlamaCppLimits:
        models = self.engine.models
        answered = (len(each.token_ids) for each in chain(self._warm_ups.values(), *self.prompts.values()))
        prefilled = (length + 1 for length in PREFILL_LENGTHS if self._fits(length))
        longest = max(*(length + self.max_tokens for length in answered), *prefilled, PASS_CONTEXT + max(PASS_ROWS))
        return LlamaCppLimits(models.target.vocab_size, longest + 1, models.tokenizer.stop_token_ids)

    def measure(
        self, llama_cpp: LlamaCpp, thread_counts: Sequence[int], progress: Progress
    ) -> Iterator[ComparedPrompt | ComparedPassCost]:
        """Answer all prompts, prefill some, and run wider passes, each with all numbers of threads in turn."""
        contenders = [
            _Contenders(_with_threads(self.engine, threads), llama_cpp.generate, self.max_tokens)
            for threads in thread_counts
        ]
        try:
            yield from self._answer_prompts(contenders, progress)
            yield from self._prefill_prompts(contenders, progress)
            yield from self._run_passes(llama_cpp, thread_counts, progress)
        finally:
            self.engine.activate()

    def _answer_prompts(self, contenders: Sequence[_Contenders], progress: Progress) -> Iterator[ComparedPrompt]:
        warmed_up = set[str]()
        for kind, prompts in self.prompts.items():
            for number, prompt in enumerate(prompts, start=1):
                if (routed := self._routed_kind(prompt.request)) not in warmed_up:
                    warmed_up.add(routed)
                    progress(f"warming up with a question of the kind {routed}")
                    for each in contenders:
                        each.warm_up(self._warm_ups.get(routed, prompt))
                for each in contenders:
                    plain, auto = each.answer(prompt)
                    ratios = f"plain {plain.speedup:.2f}, auto {auto.speedup:.2f} times llama.cpp"
                    progress(f"{kind} {number} of {len(prompts)}, threads {each.engine.threads}: {ratios}")
                    yield ComparedPrompt(each.engine.threads, kind, plain, auto)

    def _prefill_prompts(self, contenders: Sequence[_Contenders], progress: Progress) -> Iterator[ComparedPrompt]:
        count = min(MAX_PREFILL_PROMPTS, max(map(len, self.prompts.values())))
        in_turn = [each for each in chain.from_iterable(zip_longest(*self.prompts.values())) if each is not None]
        for length in PREFILL_LENGTHS:
            if not self._fits(length):
                progress(f"prefill {length}: left out, the context window has {self._window} tokens")
                continue
            texts = [cut_or_repeat(prompt.token_ids, length) for prompt in in_turn[:count]]
            contenders[0].prefill(texts[0])  # warms up: the memory that it takes is that of any number of threads
            for number, text in enumerate(texts, start=1):
                for each in contenders:
                    pair, threads = each.prefill(text), each.engine.threads
                    progress(f"prefill {length}, {number} of {count}, threads {threads}: {pair.speedup:.2f}")
                    yield ComparedPrompt(threads, f"prefill {length}", pair, prefill_tokens=length)

    def _run_passes(
        self, llama_cpp: LlamaCpp, thread_counts: Sequence[int], progress: Progress
    ) -> Iterator[ComparedPassCost]:
        """Nothing where a number of rows does not fit, or where llama.cpp cannot drop rows again."""
        row_counts = [rows for rows in PASS_ROWS if rows <= self.engine.models.target.max_rows]
        if not row_counts or not self._fits(PASS_CONTEXT + max(PASS_ROWS)):
            progress("c(M): left out, so many rows do not fit into a pass or the context window")
            return
        try:
            rounds = list(self._pass_rounds(llama_cpp, thread_counts, (1, *row_counts), progress))
        except InputError as error:
            progress(f"c(M): left out, {error}")
            return
        for threads, rows in product(thread_counts, row_counts):
            costs = [each.costs(rows) for each in rounds if each.threads == threads]
            yield ComparedPassCost(
                threads, rows,
                ours=MedianRange.from_values(ours for ours, _theirs in costs),
                theirs=MedianRange.from_values(theirs for _ours, theirs in costs),
                ratio=MedianRange.from_values(theirs / ours for ours, theirs in costs),
            )  # fmt: skip

    def _pass_rounds(
        self, llama_cpp: LlamaCpp, thread_counts: Sequence[int], row_counts: Sequence[int], progress: Progress
    ) -> Iterator[_PassRound]:
        """Of each round, the passes with each number of threads; the first round warms up and is dropped."""
        target, prompt = self.engine.models.target, next(iter(chain.from_iterable(self.prompts.values())))
        text = cut_or_repeat(prompt.token_ids, PASS_CONTEXT + max(row_counts))
        context, chains = text[:PASS_CONTEXT], {rows: text[PASS_CONTEXT:][:rows] for rows in row_counts}
        llama_cpp.prefill(context)
        with random_context(target, PASS_CONTEXT) as generation:
            ours = partial(_pass_seconds_by_rows, partial(chain_pass_seconds, target, generation.cache), chains)
            theirs = partial(_pass_seconds_by_rows, partial(llama_cpp.pass_seconds, PASS_CONTEXT), chains)
            for number, threads in product(range(PASS_ROUNDS + 1), thread_counts):
                torch.set_num_threads(threads)
                measured = _PassRound(threads, ours(), theirs())
                if number:
                    progress(f"passes, round {number} of {PASS_ROUNDS}, threads {threads}")
                    yield measured

    @property
    def _window(self) -> int:
        return self.engine.models.target.context_window

    def _fits(self, token_count: int) -> bool:
        return token_count + 1 <= self._window

    def _routed_kind(self, request: Request) -> str:
        """The kind under which the engine learns from an answer, which may be another one than the file says."""
        return choose_route(request, self.engine.models.profile, frozenset({PLAIN, AUTO})).kind

    @cached_property
    def _warm_ups(self) -> Mapping[str, TokenizedPrompt]:
        """By kind; none for a kind whose question does not fit the context window."""
        found = {
            kind: tokenize_prompts(self.engine, iter([_comparable(request, self.max_tokens)]), 1, self.max_tokens)
            for kind, request in WARM_UP_REQUESTS.items()
        }
        return {kind: prompts[0] for kind, prompts in found.items() if prompts}


@dataclass(frozen=True)
class _PassRound:
    """Seconds of passes by their rows."""

    threads: int
    ours: Mapping[int, float]
    theirs: Mapping[int, float]

    def costs(self, rows: int) -> tuple[float, float]:
        """c(rows), ours and theirs."""
        return self.ours[rows] / self.ours[1], self.theirs[rows] / self.theirs[1]


def _pass_seconds_by_rows(
    pass_seconds: Callable[[Sequence[int]], float], chains: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    pass_seconds(chains[1])  # wakes the threads up after those of the other engine
    return {rows: pass_seconds(tokens) for rows, tokens in chains.items()}


@dataclass(frozen=True)
class _Contenders:
    """Three ways to generate with the threads of the engine: plain decoding, `auto` and llama.cpp."""

    engine: Engine
    llama_cpp: GenerateFunction
    max_tokens: int

    def answer(self, prompt: TokenizedPrompt) -> tuple[PairedRuns, PairedRuns]:
        """Plain, auto, llama.cpp, llama.cpp, auto, plain: a machine that slows down slows all of them."""
        torch.set_num_threads(self.engine.threads)
        plain, auto, theirs = self._runs_of(prompt)
        first_plain, first_auto, first, second, last_auto, last_plain = (
            run() for run in (plain, auto, theirs, theirs, auto, plain)
        )
        return PairedRuns((first_plain, last_plain), (first, second)), PairedRuns(
            (first_auto, last_auto), (first, second)
        )

    def warm_up(self, prompt: TokenizedPrompt) -> None:
        torch.set_num_threads(self.engine.threads)
        for run in self._runs_of(prompt):
            run()

    def prefill(self, text: list[int]) -> PairedRuns:
        """The time to the first token of an answer."""
        torch.set_num_threads(self.engine.threads)
        return run_pair(self._plain, self.llama_cpp, text, max_tokens=1)

    @cached_property
    def _plain(self) -> GenerateFunction:
        models = self.engine.models
        budget, stop_token_ids = models.profile.speculation.budget, models.tokenizer.stop_token_ids
        return specchat_contender(models.target, Drafter, budget, stop_token_ids)

    def _runs_of(self, prompt: TokenizedPrompt) -> tuple[Callable[[], TimedRun], ...]:
        generators = (self._plain, self.llama_cpp)
        plain, theirs = (partial(generate, prompt.token_ids, self.max_tokens) for generate in generators)
        return plain, partial(self._auto, prompt.request), theirs

    def _auto(self, request: Request) -> TimedRun:
        """From the request to the last text, so templates and tokenizing count.

        Behind the last text the engine measures plain passes for the speed that it shows, and the user waits no more.
        """
        with closing(self.engine.create_session()) as session:
            answer = time_answer(session.ask(request))
        tokens = [token.token_id for step in answer.steps for token in step.committed_tokens]
        return TimedRun(tokens, answer.totals.steps, answer.output_seconds)


def _with_threads(engine: Engine, threads: int) -> Engine:
    """The engine for so many threads, which no watchdog reduces, and a chooser that has learned nothing with others.

    Costs that were stored with another number of threads would be wrong, and these must not replace them.
    """
    models = replace(engine.models, costs=Costs(), chooser_state=ChooserState(), learned_file=None)
    watchdog = ThreadWatchdog(1, torch.get_num_threads, torch.set_num_threads)
    return replace(engine, models=models, watchdog=watchdog, threads=threads)


def comparable_profile(profile: Profile) -> Profile:
    """On a CPU, in the format that `auto` chooses for the file, and greedy without penalties, as llama.cpp is here."""
    return profile.override(COMPARABLE_SETTINGS)


def gguf_file(profile: Profile) -> Path:
    """The GGUF file of the target. ModelError when it is not on this disk, InputError for a model of another kind."""
    source = profile.models.target
    file = local_gguf(source)
    if file is None:
        find_local_model(source)  # raises what says how to get it
        raise InputError(f"{source}: not a GGUF file; give one, a folder with one, starter or ollama:NAME")
    return file


def thread_counts(threads: int) -> tuple[int, ...]:
    """The given number; for 0, all that torch finds on this machine, and one."""
    return (threads,) if threads else tuple(dict.fromkeys((DEFAULT_THREADS, 1)))


def comparable_requests(profile: Profile, path: Path | None, count: int) -> dict[str, list[Request]]:
    """The requests of each kind, the kinds of built-in prompts first; without a path, built-in prompts of these."""
    known = requests_by_kind(profile, path, count)
    others = [] if path is None else [kind for kind in known if kind not in KINDS]
    return {kind: known[kind] for kind in (*KINDS, *others) if kind in known}


def tokenize_requests(
    engine: Engine, requests: Mapping[str, Sequence[Request]], count: int, max_tokens: int
) -> dict[str, tuple[TokenizedPrompt, ...]]:
    """The first `count` prompts of each kind that fit the context window; InputError when there is none."""
    tokenized = {
        kind: tokenize_prompts(engine, (_comparable(each, max_tokens) for each in of_kind), count, max_tokens)
        for kind, of_kind in requests.items()
    }
    if not any(tokenized.values()):
        raise InputError(f"no prompt there leaves room for {max_tokens} tokens in the context window")
    return {kind: prompts for kind, prompts in tokenized.items() if prompts}


def _comparable(request: Request, max_tokens: int) -> Request:
    """Answered by `auto`, without a thought: the engine would close it before the limit, and llama.cpp would not."""
    return replace(request, variant=AUTO, temperature=0.0, thinking="off", max_tokens=max_tokens)
