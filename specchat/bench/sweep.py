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
from specchat.bench.builtin_prompts import QUESTIONS
from specchat.bench.interleaved import SEED
from specchat.bench.latency import Heard, hear
from specchat.bench.prompt_files import read_prompts
from specchat.bench.sweep_cells import PLAIN, Cell, Grid, Sample
from specchat.bench.sweep_store import Store
from specchat.bench.variants import depth_of
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.chat.session import Session
from specchat.chooser.chooser import Chooser
from specchat.drafters.eagle import FeatureDrafter
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import InputError, SpecchatError
from specchat.profile import KINDS, Profile

SPARE = 6  # prompts read for each that is measured: some bring files that no small window holds
Progress = Callable[[str], None]
Asker = Callable[[Request, Cell], Heard]


def sweep(
    ask: Asker,
    grid: Grid,
    prompts: Mapping[str, Sequence[Request]],
    count: int,
    store: Store,
    progress: Progress = lambda _what: None,
) -> Iterator[Sample]:
    """Every answer on the first `count` prompts of each kind that the window holds: what the store has, and the rest.

    What is measured is kept before it is yielded.
    """
    for kind, temperature in product(prompts, grid.temperatures):
        done = 0
        for request in prompts[kind]:
            if done == count:
                break
            asked = _asked(request, grid, temperature)
            kept = {cell: store.get(cell, hash_of(asked)) for cell in grid.cells(kind, temperature)}
            yield from (sample for sample in kept.values() if sample is not None)
            place = f"{kind} T={temperature:g} {done + 1}/{count}"
            try:
                for sample in _beside_plain(ask, asked, [cell for cell, sample in kept.items() if sample is None]):
                    store.add(sample)
                    progress(f"{place} {sample.cell.name}: {sample.ratio:.2f}")
                    yield sample
            except SpecchatError as error:
                progress(f"{place}: left out: {error}")
                continue
            done += 1


@dataclass(frozen=True)
class Collected:
    """What a sweep came to, and whether nobody ended it early."""

    samples: tuple[Sample, ...]
    is_whole: bool


def collect(samples: Iterator[Sample]) -> Collected:
    """All answers, or those until Ctrl-C."""
    collected = list[Sample]()
    try:
        for sample in samples:
            collected.append(sample)
    except KeyboardInterrupt:
        return Collected(tuple(collected), is_whole=False)
    return Collected(tuple(collected), is_whole=True)


def announcement(seconds: float, grid: Grid, prompts: int, kept: int) -> str:
    """How much there is to do, for somebody who may want to do it later."""
    answers = grid.answers(prompts)
    minutes = seconds * answers / 60
    length = f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"
    held = f"; {kept} answers are kept from before" if kept else ""
    return f"{answers} answers, {length} in all{held}; Ctrl-C ends it with what there is"


def warm_up(ask: Asker, grid: Grid, prompts: Mapping[str, Sequence[Request]]) -> float:
    """Answer one prompt plainly, for whatever is slow the first time, and again: seconds of such an answer."""
    cell = Cell(next(iter(prompts)), grid.temperatures[0], PLAIN)
    for request in prompts[cell.kind]:
        asked = _asked(request, grid, cell.temperature)
        try:
            ask(asked, cell)
            return ask(asked, cell).whole
        except SpecchatError:
            continue  # it will be left out, too
    return 0.0


def _asked(request: Request, grid: Grid, temperature: float) -> Request:
    return replace(request, temperature=temperature, seed=SEED, max_tokens=grid.limit)


def _beside_plain(ask: Asker, request: Request, cells: Sequence[Cell]) -> Iterator[Sample]:
    """Plain, two combinations, plain, two combinations, ..."""
    if not cells:
        return
    key, plain = hash_of(request), ask(request, cells[0].plain)
    if PLAIN in {cell.drafter for cell in cells}:
        yield _sample(cells[0].plain, key, plain, plain)
    others = [cell for cell in cells if cell.drafter != PLAIN]
    random.Random(key).shuffle(others)
    for place, cell in enumerate(others):
        answer = ask(request, cell)
        if place % 2:
            plain = ask(request, cell.plain)
        yield _sample(cell, key, answer, plain)


def _sample(cell: Cell, prompt: str, heard: Heard, plain: Heard) -> Sample:
    depths, kept, totals = Counter[int](), Counter[int](), heard.totals
    fallen = 0
    for step in heard.steps:
        depth, held = depth_of(step), len(step.committed) - 1
        depths[depth] += 1
        kept.update(range(1, held + 1))
        fallen += held < depth
    return Sample(
        cell, prompt, totals.tokens, totals.steps, totals.drafted, sum(totals.accepted.values()), fallen,
        dict(sorted(depths.items())), dict(sorted(kept.items())), totals.draft_seconds, totals.verify_seconds,
        plain.totals.tokens, plain.totals.decode_seconds, heard.first, heard.gaps, heard.whole,
        heard.text == plain.text,
    )  # fmt: skip


def hash_of(request: Request) -> str:
    """A word that changes with what is asked."""
    return blake2b(repr(request).encode(), digest_size=8).hexdigest()


class Narrow(Drafter):
    """Somebody else, of whose tree so many guesses of each depth are taken, the likeliest first."""

    def __init__(self, drafter: Drafter, width: int) -> None:
        if isinstance(drafter, FeatureDrafter):  # who can grow a narrow tree should not be charged for a wide one
            drafter.growth = replace(drafter.growth, width=width)
        self.drafter, self.width = drafter, width
        self.name, self.is_instant, self.taps = drafter.name, drafter.is_instant, drafter.taps

    def propose(self, context: Context) -> DraftTree:
        """The first of each depth, as far as their parents are there."""
        tree, taken, kept = self.drafter.propose(context), Counter[int](), {ROOT}
        for node in range(1, len(tree)):
            if tree.parents[node] in kept and taken[tree.depths[node]] < self.width:
                kept.add(node)
                taken[tree.depths[node]] += 1
        return tree.cut(sorted(kept - {ROOT}))

    def observe(self, outcome: Outcome) -> None:
        """Passed on."""
        self.drafter.observe(outcome)

    def forget(self, length: int) -> None:
        """Passed on."""
        self.drafter.forget(length)


def engine_asker(engine: Engine) -> Asker:
    """Answers of an engine of this process, each in a conversation of its own, in which nobody else listens."""

    def ask(request: Request, cell: Cell) -> Heard:
        with closing(_session(engine, cell)) as session:
            return hear(session.ask(replace(request, variant=cell.drafter)))

    return ask


def _session(engine: Engine, cell: Cell) -> Session:
    profile = engine.voice.profile.override({"speculation.budget": cell.budget or None})
    whole = engine.session(profile=profile)
    if cell.drafter == whole.chooser.name:
        return whole
    whole.close()
    drafter = whole.drafters[cell.drafter]
    named = {cell.drafter: Narrow(drafter, cell.width) if cell.width else drafter, "as it is": drafter}
    return Session(whole.voice, named, Chooser({}, whole.voice.costs))


def at_hand(engine: Engine) -> tuple[str, ...]:
    """Whoever can guess with the loaded models, plain decoding left out; the chooser last."""
    with engine.session() as session:
        return tuple(name for name in session.drafters if name != PLAIN)


def by_kind(profile: Profile, path: Path | None, count: int) -> dict[str, list[Request]]:
    """Requests of each kind, some more than `count`; without a path, those of our own.

    A file that is called as a kind says what its prompts are; of others the router tells, where a file that comes along
    is to be edited. Raises InputError when there is nothing to ask.
    """
    if path is None:
        return {kind: list(requests) for kind, requests in QUESTIONS.items()}
    found: dict[str, list[Request]] = {}
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else []
    for file in files or [path]:
        for request in read_prompts(file):
            kind, asked = _told(profile, file.stem, request)
            known = found.setdefault(kind, [])
            if len(known) < count * SPARE and asked not in known:  # collections quote one another
                known.append(asked)
    if not found:
        raise InputError(f"{path}: no prompt there")
    return {kind: found[kind] for kind in KINDS if kind in found}


def _told(profile: Profile, name: str, request: Request) -> tuple[str, Request]:
    """The kind of a request from the file of this name, and how such a request is made."""
    is_edit = bool(request.files) and (name == "edit" or name not in KINDS)
    asked = replace(request, task="edit") if is_edit else request
    return name if name in KINDS else choose_route(asked, profile, frozenset({PLAIN, "auto"})).kind, asked
