"""Our engine beside llama.cpp on the same GGUF file: chats, code, edits and the reading of prompts.

Both compute on the CPU, greedily, and with as many threads. llama.cpp is a function that generates; this file knows
neither its library nor the command line, nor how the result is shown (`gguf_peers_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, zip_longest
from pathlib import Path

import torch

from specchat.bench.builtin_prompts import WARM_UP_REQUESTS
from specchat.bench.combinations import AUTO, PLAIN
from specchat.bench.latency import time_answer
from specchat.bench.llama_cpp import GenerateFunction, LlamaCppLimits, TimedRun
from specchat.bench.measure import Progress, requests_by_kind
from specchat.bench.peers import (
    PairedRuns,
    TokenizedPrompt,
    compare,
    cut_or_repeat,
    specchat_contender,
    tokenize_prompts,
)
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.chat.session import ChooserState
from specchat.chooser.costs import Costs
from specchat.engine.drafter import Drafter
from specchat.errors import InputError
from specchat.loading.load_engine import DEFAULT_THREADS, Engine
from specchat.models.gguf_sources import local_gguf
from specchat.models.load_options import find_local_model
from specchat.profile import BUILTIN_BACKEND, Profile
from specchat.threads import ThreadWatchdog

KINDS = ("chat", "code", "edit")  # of built-in prompts, in the order of the rows
READ_LENGTHS = (512, 4096)  # tokens of a prompt that is only read
MAX_READ_PROMPTS = 2  # of each length: reading takes as long for every text
COMPARABLE_SETTINGS: Mapping[str, object] = {
    "models.device": "cpu", "models.backend": BUILTIN_BACKEND, "models.dtype": "auto", "models.weights": "auto",
    "sampling.temperature": 0.0, "sampling.repetition_penalty": 1.0, "sampling.frequency_penalty": 0.0,
    "sampling.presence_penalty": 0.0, "limits.repeats": 0,
}  # fmt: skip


@dataclass(frozen=True)
class ComparedPrompt:
    """One prompt of a row: plain decoding and `auto` against the same two runs of llama.cpp.

    A prompt that is only read has no `auto`, because nothing is drafted then, and `read_tokens`.
    """

    threads: int
    task: str  # the kind of the prompt, or "read 512"
    plain: PairedRuns
    auto: PairedRuns | None = None
    read_tokens: int = 0

    @property
    def has_same_text(self) -> bool:
        return all(pair.is_identical for pair in (self.plain, self.auto) if pair is not None)

    def tokens_in(self, run: TimedRun) -> int:
        """The tokens that a run is counted by: generated ones, or those that were read."""
        return self.read_tokens or len(run.tokens)


@dataclass(frozen=True)
class GgufBench:
    """The comparisons of one engine. `prompts` are those of each kind, and answers have at most `max_tokens`."""

    engine: Engine
    prompts: Mapping[str, Sequence[TokenizedPrompt]]
    max_tokens: int

    @property
    def llama_cpp_limits(self) -> LlamaCppLimits:
        models, read_lengths = self.engine.models, [length for length in READ_LENGTHS if self._fits(length)]
        answered = chain(self._warm_ups.values(), *self.prompts.values())
        lengths = [*(len(each.token_ids) + self.max_tokens for each in answered), *(each + 1 for each in read_lengths)]
        return LlamaCppLimits(models.target.vocab_size, max(lengths) + 1, models.tokenizer.stop_token_ids)

    def measure(
        self, llama_cpp: GenerateFunction, thread_counts: Sequence[int], progress: Progress
    ) -> Iterator[ComparedPrompt]:
        """Answer all prompts with each number of threads, then read them."""
        try:
            for threads in thread_counts:
                yield from self._answer_prompts(llama_cpp, threads, progress)
            for threads in thread_counts:
                yield from self._read_prompts(llama_cpp, threads, progress)
        finally:
            self.engine.activate()

    def _answer_prompts(
        self, llama_cpp: GenerateFunction, threads: int, progress: Progress
    ) -> Iterator[ComparedPrompt]:
        contenders = _Contenders(_with_threads(self.engine, threads), llama_cpp, self.max_tokens)
        warmed_up = set[str]()
        for kind, prompts in self.prompts.items():
            for number, prompt in enumerate(prompts, start=1):
                if (routed := self._routed_kind(prompt.request)) not in warmed_up:
                    warmed_up.add(routed)
                    progress(f"threads {threads}: warming up with a question of the kind {routed}")
                    contenders.warm_up(self._warm_ups.get(routed, prompt))
                plain, auto = contenders.run(prompt)
                ratios = f"plain {plain.speedup:.2f}, auto {auto.speedup:.2f} times llama.cpp"
                progress(f"threads {threads}, {kind} {number} of {len(prompts)}: {ratios}")
                yield ComparedPrompt(threads, kind, plain, auto)

    def _read_prompts(self, llama_cpp: GenerateFunction, threads: int, progress: Progress) -> Iterator[ComparedPrompt]:
        contenders = _Contenders(_with_threads(self.engine, threads), llama_cpp, self.max_tokens)
        count = min(MAX_READ_PROMPTS, max(map(len, self.prompts.values())))
        in_turn = [each for each in chain.from_iterable(zip_longest(*self.prompts.values())) if each is not None]
        for length in READ_LENGTHS:
            if not self._fits(length):
                progress(f"read {length}: left out, the context window has {self._window} tokens")
                continue
            texts = [cut_or_repeat(prompt.token_ids, length) for prompt in in_turn[:count]]
            for number, pair in enumerate(compare(contenders.plain, llama_cpp, texts, max_tokens=1), start=1):
                progress(f"threads {threads}, read {length}, {number} of {len(texts)}: {pair.speedup:.2f}")
                yield ComparedPrompt(threads, f"read {length}", pair, read_tokens=length)

    @property
    def _window(self) -> int:
        return self.engine.models.target.context_window

    def _fits(self, read_tokens: int) -> bool:
        return read_tokens + 1 <= self._window

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
class _Contenders:
    """Three ways to generate: plain decoding, `auto` and llama.cpp."""

    engine: Engine
    llama_cpp: GenerateFunction
    max_tokens: int

    def run(self, prompt: TokenizedPrompt) -> tuple[PairedRuns, PairedRuns]:
        """Plain, auto, llama.cpp, llama.cpp, auto, plain: a machine that slows down slows all of them."""
        plain, auto, theirs = self._runs_of(prompt)
        first_plain, first_auto, first, second, last_auto, last_plain = (
            run() for run in (plain, auto, theirs, theirs, auto, plain)
        )
        return PairedRuns((first_plain, last_plain), (first, second)), PairedRuns(
            (first_auto, last_auto), (first, second)
        )

    def warm_up(self, prompt: TokenizedPrompt) -> None:
        for run in self._runs_of(prompt):
            run()

    @cached_property
    def plain(self) -> GenerateFunction:
        models = self.engine.models
        budget, stop_token_ids = models.profile.speculation.budget, models.tokenizer.stop_token_ids
        return specchat_contender(models.target, lambda _: Drafter(), budget, stop_token_ids)

    def _runs_of(self, prompt: TokenizedPrompt) -> tuple[Callable[[], TimedRun], ...]:
        generators = (self.plain, self.llama_cpp)
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
    """The engine with so many threads, which no watchdog reduces, and a chooser that has learned nothing with others.

    Costs that were stored with another number of threads would be wrong, and these must not replace them.
    """
    torch.set_num_threads(threads)
    models = replace(engine.models, costs=Costs(), chooser_state=ChooserState())
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
