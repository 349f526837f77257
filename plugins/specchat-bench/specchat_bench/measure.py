"""The one loop of the bench: every combination of drafter, budget, width and temperature beside plain decoding.

A prompt is answered plain, by two combinations, plain, by two more and so on, in an order that is shuffled for each
prompt. A ratio compares answers that ran one after the other, so it does not depend on how busy the machine was a
minute ago. Every sample is stored at once (`sample_store.py`), so a bench can be interrupted and resumed.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import chain, product
from pathlib import Path

import click
import torch

from specchat.chat.request import Request
from specchat.chat.router import check_available, choose_route
from specchat.chat.session import Session
from specchat.drafters.registry import BuiltDrafters
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.grammar import GRAMMAR_SOURCE
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import InputError, ProfileError, SpecchatError
from specchat.loading.load_engine import Engine
from specchat.paths import cache_folder
from specchat.profile.keys import REQUEST_KINDS, Profile
from specchat_bench.builtin_prompts import BUILTIN_REQUESTS
from specchat_bench.combinations import PLAIN, Combination, Grid, Sample
from specchat_bench.latency import TimedAnswer, time_answer
from specchat_bench.prompt_files import read_prompts
from specchat_bench.sample_store import SampleStore, store_path

SEED = 7
CANDIDATES_PER_PROMPT = 6  # prompts read for each that is measured: some attach files that no small window holds
Progress = Callable[[str], None]
MeasureRequest = Callable[[Request, Combination], TimedAnswer]


@dataclass(frozen=True)
class Collected:
    """The samples of a bench, and whether it ran to its end."""

    samples: tuple[Sample, ...]
    is_complete: bool


def engine_measurer(engine: Engine) -> MeasureRequest:
    """Measures with an engine of this process: one session for each answer, in which no other drafter observes."""

    def measure(request: Request, combination: Combination) -> TimedAnswer:
        with closing(session_for(engine, combination)) as session:
            return time_answer(session.ask(replace(request, variant=combination.drafter)))

    return measure


def session_for(engine: Engine, combination: Combination) -> Session:
    """A session in which only the drafter of this combination observes."""
    profile = engine.models.profile.override({"speculation.budget": combination.budget or None})
    session = engine.create_session(profile=profile)
    if combination.drafter == session.chooser.name:
        return session
    session.generation.close()  # and not its drafters
    drafter = session.drafters[combination.drafter]
    limited = WidthLimitedDrafter(drafter, combination.width) if combination.width else drafter
    return Session(session.models, BuiltDrafters({combination.drafter: limited}, {}, deque()))


def run_bench(
    measure: MeasureRequest,
    grid: Grid,
    prompts: Mapping[str, Sequence[Request]],
    count: int,
    store: SampleStore,
    progress: Progress,
) -> Collected:
    """Announce the work and do it. InputError when no prompt could be answered, Abort when Ctrl-C left no sample."""
    total = sum(min(count, len(requests)) for requests in prompts.values())
    progress(estimate_text(warm_up(measure, grid, prompts), grid, total, len(store)))
    collected = collect_until_interrupt(run_combinations(measure, grid, prompts, count, store, progress))
    if not collected.samples and collected.is_complete:
        raise InputError("nothing was measured: no prompt there could be answered")
    if not collected.samples:
        raise click.Abort
    return collected


def run_combinations(
    measure: MeasureRequest,
    grid: Grid,
    prompts: Mapping[str, Sequence[Request]],
    count: int,
    store: SampleStore,
    progress: Progress = lambda _message: None,
) -> Iterator[Sample]:
    """A sample of every combination on the first `count` prompts of each kind that fit the context window.

    Samples come from the store where it has them, and are stored before they are yielded.
    """
    for kind, temperature in product(prompts, grid.temperatures):
        done = 0
        for prompt in prompts[kind]:
            if done == count:
                break
            request = _with_sampling(prompt, grid, temperature)
            stored = {each: store.get(each, request_hash(request)) for each in grid.combinations(kind, temperature)}
            yield from (sample for sample in stored.values() if sample is not None)
            label = f"{kind} T={temperature:g} {done + 1}/{count}"
            missing = [combination for combination, sample in stored.items() if sample is None]
            try:
                for sample in measure_with_plain(measure, request, missing):
                    store.add(sample)
                    progress(f"{label} {sample.combination.name}: {sample.speedup:.2f}")
                    yield sample
            except SpecchatError as error:
                progress(f"{label}: left out: {error}")
                continue
            done += 1


def collect_until_interrupt(samples: Iterator[Sample]) -> Collected:
    collected = list[Sample]()
    try:
        for sample in samples:
            collected.append(sample)
    except KeyboardInterrupt:
        return Collected(tuple(collected), is_complete=False)
    return Collected(tuple(collected), is_complete=True)


def estimate_text(seconds_per_answer: float, grid: Grid, prompt_count: int, stored_samples: int) -> str:
    answers = grid.answer_count(prompt_count)
    minutes = seconds_per_answer * answers / 60
    length = f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"
    stored = f"; {stored_samples} samples are stored from before" if stored_samples else ""
    return f"{answers} answers, {length} in all{stored}; Ctrl-C ends it with the samples so far"


def warm_up(measure: MeasureRequest, grid: Grid, prompts: Mapping[str, Sequence[Request]]) -> float:
    """Answer one prompt twice without drafts; the first answer is slow, the seconds of the second are returned."""
    combination = Combination(next(iter(prompts)), grid.temperatures[0], PLAIN)
    for prompt in prompts[combination.kind]:
        request = _with_sampling(prompt, grid, combination.temperature)
        try:
            measure(request, combination)
            return measure(request, combination).request_seconds
        except SpecchatError:
            continue  # the bench leaves it out, too
    return 0.0


def _with_sampling(request: Request, grid: Grid, temperature: float) -> Request:
    return replace(request, temperature=temperature, seed=SEED, max_tokens=grid.max_tokens)


def measure_with_plain(
    measure: MeasureRequest, request: Request, combinations: Sequence[Combination]
) -> Iterator[Sample]:
    """Plain, two combinations, plain, two combinations, …"""
    if not combinations:
        return
    baseline = Combination(combinations[0].kind, combinations[0].temperature, PLAIN)
    plain = measure(request, baseline)
    if baseline in combinations:
        yield _sample(baseline, request, plain, plain)
    others = [each for each in combinations if each.drafter != PLAIN]
    random.Random(request_hash(request)).shuffle(others)
    for index, combination in enumerate(others):
        answer = measure(request, combination)
        if index % 2:
            plain = measure(request, baseline)
        yield _sample(combination, request, answer, plain)


def _sample(combination: Combination, request: Request, answer: TimedAnswer, plain: TimedAnswer) -> Sample:
    passes_by_depth, accepted_by_depth, totals = Counter[int](), Counter[int](), answer.totals
    passes_with_rejection = 0
    for step in answer.steps:
        accepted, tested = sum(step.acceptance.accepted), sum(step.acceptance.tested)
        passes_by_depth[step.depth] += 1
        accepted_by_depth.update(range(1, accepted + 1))
        passes_with_rejection += tested - accepted
    return Sample(
        combination=combination,
        prompt_hash=request_hash(request),
        tokens=totals.completion_tokens,
        target_passes=totals.steps,
        draft_tokens=totals.draft_tokens,
        accepted_tokens=sum(totals.accepted_by_drafter.values()),
        forced_tokens=totals.accepted_by_drafter.get(GRAMMAR_SOURCE, 0),
        passes_with_rejection=passes_with_rejection,
        passes_by_depth=dict(sorted(passes_by_depth.items())),
        accepted_by_depth=dict(sorted(accepted_by_depth.items())),
        draft_seconds=totals.draft_seconds,
        verify_seconds=totals.verify_seconds,
        plain_tokens=plain.totals.completion_tokens,
        plain_decode_seconds=plain.totals.decode_seconds,
        ttft_seconds=answer.ttft_seconds,
        text_intervals=answer.text_intervals,
        request_seconds=answer.request_seconds,
        is_same_text=(answer.text, answer.calls) == (plain.text, plain.calls),
    )


def request_hash(request: Request) -> str:
    return blake2b(repr(request).encode(), digest_size=8).hexdigest()


class WidthLimitedDrafter(Drafter):
    """Another drafter, with at most `width` draft tokens at each depth; the likeliest are kept."""

    def __init__(self, drafter: Drafter, width: int) -> None:
        drafter.limit_width(width)  # one that can grow a narrow tree must not be charged for a wide one
        self.drafter, self.width = drafter, width
        self.name, self.is_instant = drafter.name, drafter.is_instant
        self.hidden_state_layers = drafter.hidden_state_layers

    def start_answer(self, task: AnswerTask) -> None:
        self.drafter.start_answer(task)

    def propose(self, context: DraftContext) -> DraftTree:
        """The first nodes of each depth whose parents are kept."""
        tree, count_at_depth, kept = self.drafter.propose(context), Counter[int](), {ROOT}
        for node in range(1, len(tree)):
            if tree.parents[node] in kept and count_at_depth[tree.depths[node]] < self.width:
                kept.add(node)
                count_at_depth[tree.depths[node]] += 1
        return tree.prune(sorted(kept - {ROOT}))

    def observe(self, outcome: Outcome) -> None:
        self.drafter.observe(outcome)

    def forget(self, length: int) -> None:
        self.drafter.forget(length)

    def close(self) -> None:
        self.drafter.close()


def split_by_availability(engine: Engine, names: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The drafters that can run with the loaded models, and for each other one the reason."""
    with engine.create_session() as session:
        available, skipped = frozenset({PLAIN, *session.drafters}), dict[str, str]()
    for name in names:
        try:
            check_available(name, available)
        except ProfileError as error:
            skipped[name] = str(error)
    return tuple(name for name in names if name not in skipped), skipped


def requests_by_kind(profile: Profile, path: Path | None, count: int) -> dict[str, list[Request]]:
    """Requests of each kind, some more than `count`; where the path has too few of a kind, built-in ones follow.

    A file named after a kind (edit.jsonl) says what its prompts are; for other files the router decides, and a prompt
    with a file is an edit. InputError when the path holds no prompt.
    """
    builtin = {kind: list(requests) for kind, requests in BUILTIN_REQUESTS.items()}
    if path is None:
        return builtin
    found: dict[str, list[Request]] = {}
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else []
    for file in files or [path]:
        for prompt in read_prompts(file):
            kind, request = _kind_and_request(profile, file.stem, prompt)
            requests = found.setdefault(kind, [])
            if len(requests) < count * CANDIDATES_PER_PROMPT and request not in requests:  # collections overlap
                requests.append(request)
    if not found:
        raise InputError(f"{path}: no prompt there")
    return {kind: list(chain(found[kind], builtin.get(kind, ()))) for kind in REQUEST_KINDS if kind in found}


def _kind_and_request(profile: Profile, file_name: str, request: Request) -> tuple[str, Request]:
    is_edit = bool(request.files) and (file_name == "edit" or file_name not in REQUEST_KINDS)
    request = replace(request, task="edit") if is_edit else request
    if file_name in REQUEST_KINDS:
        return file_name, request
    return choose_route(request, profile, frozenset({PLAIN, "auto"})).kind, request


def open_store(engine: Engine, grid: Grid, *, restart: bool) -> SampleStore:
    """The samples of an earlier, interrupted bench of these models on this machine; none after `restart`."""
    models = engine.models
    dependencies = {
        "costs": models.learned_file.path.stem if models.learned_file else "",
        "max_tokens": grid.max_tokens,
        "threads": torch.get_num_threads(),
        "profile": asdict(models.profile) | {"name": "", "description": ""},
    }
    store = SampleStore(store_path(cache_folder(), dependencies))
    if not restart:
        return store
    store.discard()
    return SampleStore(store.path)


def set_thread_count(count: int) -> None:
    """How many threads torch uses for a pass; 0 changes nothing."""
    if count:
        torch.set_num_threads(count)
