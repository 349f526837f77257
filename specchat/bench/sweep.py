"""Drafter x budget x width x temperature, by kind of prompt: every combination beside plain decoding in the same run.

A prompt is answered plain, by two combinations, plain, by two more and so on, in an order that is shuffled for each
prompt: the ratio of answers that stand side by side does not depend on how busy the machine was a minute ago. What was
measured is kept answer by answer (`sweep_store.py`), so that a sweep can be ended and taken up again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product
from pathlib import Path

from specchat.assemble import Engine
from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
from specchat.bench.interleaved import SEED
from specchat.bench.latency import TimedAnswer, time_answer
from specchat.bench.prompt_files import read_prompts
from specchat.bench.sweep_cells import PLAIN, Combination, Grid, SweepSample
from specchat.bench.sweep_store import SampleStore
from specchat.bench.variants import draft_tree_depth
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.chat.session import Session
from specchat.chooser.chooser import Chooser
from specchat.drafters.eagle import EagleDrafter
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import InputError, SpecchatError
from specchat.profile import REQUEST_KINDS, Profile

CANDIDATES_PER_PROMPT = 6  # prompts read for each that is measured: some bring files that no small window holds
Progress = Callable[[str], None]
MeasureRequest = Callable[[Request, Combination], TimedAnswer]


def run_combinations(
    measure_request: MeasureRequest,
    grid: Grid,
    prompts: Mapping[str, Sequence[Request]],
    count: int,
    store: SampleStore,
    progress: Progress = lambda _what: None,
) -> Iterator[SweepSample]:
    """Every answer on the first `count` prompts of each kind that the window holds: what the store has, and the rest.

    What is measured is kept before it is yielded.
    """
    for kind, temperature in product(prompts, grid.temperatures):
        done = 0
        for request in prompts[kind]:
            if done == count:
                break
            asked = _with_sampling(request, grid, temperature)
            kept = {cell: store.get(cell, request_hash(asked)) for cell in grid.combinations(kind, temperature)}
            yield from (sample for sample in kept.values() if sample is not None)
            place = f"{kind} T={temperature:g} {done + 1}/{count}"
            try:
                for sample in _measure_with_plain(
                    measure_request, asked, [cell for cell, sample in kept.items() if sample is None]
                ):
                    store.add(sample)
                    progress(f"{place} {sample.combination.name}: {sample.speedup:.2f}")
                    yield sample
            except SpecchatError as error:
                progress(f"{place}: left out: {error}")
                continue
            done += 1


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to, and whether nobody ended it early."""

    samples: tuple[SweepSample, ...]
    is_complete: bool


def collect_until_interrupt(samples: Iterator[SweepSample]) -> SweepResult:
    """All answers, or those until Ctrl-C."""
    collected = list[SweepSample]()
    try:
        for sample in samples:
            collected.append(sample)
    except KeyboardInterrupt:
        return SweepResult(tuple(collected), is_complete=False)
    return SweepResult(tuple(collected), is_complete=True)


def estimate_text(seconds: float, grid: Grid, prompts: int, stored_answers: int) -> str:
    """How much there is to do, for somebody who may want to do it later."""
    answers = grid.answer_count(prompts)
    minutes = seconds * answers / 60
    length = f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"
    held = f"; {stored_answers} answers are kept from before" if stored_answers else ""
    return f"{answers} answers, {length} in all{held}; Ctrl-C ends it with what there is"


def warm_up(measure_request: MeasureRequest, grid: Grid, prompts: Mapping[str, Sequence[Request]]) -> float:
    """Answer one prompt plainly, for whatever is slow the first time, and again: seconds of such an answer."""
    cell = Combination(next(iter(prompts)), grid.temperatures[0], PLAIN)
    for request in prompts[cell.kind]:
        asked = _with_sampling(request, grid, cell.temperature)
        try:
            measure_request(asked, cell)
            return measure_request(asked, cell).request_seconds
        except SpecchatError:
            continue  # it will be left out, too
    return 0.0


def _with_sampling(request: Request, grid: Grid, temperature: float) -> Request:
    return replace(request, temperature=temperature, seed=SEED, max_tokens=grid.max_tokens)


def _measure_with_plain(
    measure_request: MeasureRequest, request: Request, cells: Sequence[Combination]
) -> Iterator[SweepSample]:
    """Plain, two combinations, plain, two combinations, ..."""
    if not cells:
        return
    key, plain = request_hash(request), measure_request(request, cells[0].plain_baseline)
    if PLAIN in {cell.drafter for cell in cells}:
        yield _sample(cells[0].plain_baseline, key, plain, plain)
    others = [cell for cell in cells if cell.drafter != PLAIN]
    random.Random(key).shuffle(others)
    for place, cell in enumerate(others):
        answer = measure_request(request, cell)
        if place % 2:
            plain = measure_request(request, cell.plain_baseline)
        yield _sample(cell, key, answer, plain)


def _sample(cell: Combination, prompt: str, answer: TimedAnswer, plain: TimedAnswer) -> SweepSample:
    depths, kept, totals = Counter[int](), Counter[int](), answer.totals
    fallen = 0
    for step in answer.steps:
        depth, held = draft_tree_depth(step), len(step.committed_tokens) - 1
        depths[depth] += 1
        kept.update(range(1, held + 1))
        fallen += held < depth
    return SweepSample(
        cell, prompt, totals.completion_tokens, totals.steps, totals.draft_tokens, sum(totals.accepted_by_drafter.values()), fallen,
        dict(sorted(depths.items())), dict(sorted(kept.items())), totals.draft_seconds, totals.verify_seconds,
        plain.totals.completion_tokens, plain.totals.decode_seconds, answer.ttft_seconds, answer.text_intervals, answer.request_seconds,
        answer.text == plain.text,
    )  # fmt: skip


def request_hash(request: Request) -> str:
    """A word that changes with what is asked."""
    return blake2b(repr(request).encode(), digest_size=8).hexdigest()


class WidthLimitedDrafter(Drafter):
    """Somebody else, of whose tree so many guesses of each depth are taken, the likeliest first."""

    def __init__(self, drafter: Drafter, width: int) -> None:
        if isinstance(drafter, EagleDrafter):  # who can grow a narrow tree should not be charged for a wide one
            drafter.tree_config = replace(drafter.tree_config, width=width)
        self.drafter, self.width = drafter, width
        self.name, self.is_instant, self.hidden_state_layers = (
            drafter.name,
            drafter.is_instant,
            drafter.hidden_state_layers,
        )

    def propose(self, context: DraftContext) -> DraftTree:
        """The first of each depth, as far as their parents are there."""
        tree, taken, kept = self.drafter.propose(context), Counter[int](), {ROOT}
        for node in range(1, len(tree)):
            if tree.parents[node] in kept and taken[tree.depths[node]] < self.width:
                kept.add(node)
                taken[tree.depths[node]] += 1
        return tree.prune(sorted(kept - {ROOT}))

    def observe(self, outcome: Outcome) -> None:
        """Passed on."""
        self.drafter.observe(outcome)

    def forget(self, length: int) -> None:
        """Passed on."""
        self.drafter.forget(length)


def engine_measurer(engine: Engine) -> MeasureRequest:
    """Answers of an engine of this process, each in a conversation of its own, in which nobody else listens."""

    def ask(request: Request, cell: Combination) -> TimedAnswer:
        with closing(_session(engine, cell)) as session:
            return time_answer(session.ask(replace(request, variant=cell.drafter)))

    return ask


def _session(engine: Engine, cell: Combination) -> Session:
    profile = engine.models.profile.override({"speculation.budget": cell.budget or None})
    whole = engine.create_session(profile=profile)
    if cell.drafter == whole.chooser.name:
        return whole
    whole.close()
    drafter = whole.drafters[cell.drafter]
    named = {cell.drafter: WidthLimitedDrafter(drafter, cell.width) if cell.width else drafter, "as it is": drafter}
    return Session(whole.models, named, Chooser({}, whole.models.costs))


def available_drafters(engine: Engine) -> tuple[str, ...]:
    """Whoever can guess with the loaded models, plain decoding left out; the chooser last."""
    with engine.create_session() as session:
        return tuple(name for name in session.drafters if name != PLAIN)


def requests_by_kind(profile: Profile, path: Path | None, count: int) -> dict[str, list[Request]]:
    """Requests of each kind, some more than `count`; without a path, those of our own.

    A file that is called as a kind says what its prompts are; of others the router tells, where a file that comes along
    is to be edited. Raises InputError when there is nothing to ask.
    """
    if path is None:
        return {kind: list(requests) for kind, requests in BUILTIN_REQUESTS.items()}
    found: dict[str, list[Request]] = {}
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else []
    for file in files or [path]:
        for request in read_prompts(file):
            kind, asked = _kind_and_request(profile, file.stem, request)
            known = found.setdefault(kind, [])
            if len(known) < count * CANDIDATES_PER_PROMPT and asked not in known:  # collections quote one another
                known.append(asked)
    if not found:
        raise InputError(f"{path}: no prompt there")
    return {kind: found[kind] for kind in REQUEST_KINDS if kind in found}


def _kind_and_request(profile: Profile, name: str, request: Request) -> tuple[str, Request]:
    """The kind of a request from the file of this name, and how such a request is made."""
    is_edit = bool(request.files) and (name == "edit" or name not in REQUEST_KINDS)
    asked = replace(request, task="edit") if is_edit else request
    return name if name in REQUEST_KINDS else choose_route(asked, profile, frozenset({PLAIN, "auto"})).kind, asked
