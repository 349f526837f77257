"""What a pass costs: by rows, by context, against the memory it has to read, and what the host adds to each step.

Everything that is divided by something else is measured beside it, round by round, so that a neighbour who slows the
machine down slows both. The text before a pass is noise: its length costs, its numbers do not.
"""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specchat.assemble import load_engine
from specchat.bench.markdown_table import table
from specchat.bench.statistics import Spread
from specchat.engine.cache import KVCache
from specchat.engine.decode import Plan, Writing
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model, Output
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.models.load import find_model
from specchat.profile import Profile

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CONTEXTS = (128, 4096, 16384)
STEPS = 8  # whole steps of the engine in a round
BANDWIDTH_BYTES = 2**28  # more than any cache holds
ROOT_TOKEN = 400

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PassRow:
    """One dtype at one context. Ratios are middles of rounds, each against a pass over one row of the same round."""

    dtype: str
    context: int
    threads: int
    one: Spread  # seconds of a pass over one row
    growth: Mapping[int, Spread]  # by rows: seconds against those of one row
    bandwidth: float  # bytes a second that this machine reads, or that this card copies
    share: Spread  # of that bandwidth, for weights and rows that a pass over one row reads
    host: Spread  # seconds of a plain step that are not its pass
    waits: float | None  # times that a plain step waits for the card; None without one


class Clocked:
    """A model that remembers how long its passes took: on a card by the card's own clock, without waiting for it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.vocabulary, self.window, self.chunk, self.widest = (
            model.vocabulary,
            model.window,
            model.chunk,
            model.widest,
        )
        self.takes_trees, self.pool, self.bytes, self.taps = model.takes_trees, model.pool, model.bytes, model.taps
        self._is_card = model.pool.layout.device.type == "cuda"
        self._passes: list[Callable[[], float]] = []

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node."""
        if self._is_card:
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            output = self.model.forward(tree, cache)
            ended.record()
            self._passes.append(lambda: begun.elapsed_time(ended) / 1000)
        else:
            started = perf_counter()
            output = self.model.forward(tree, cache)
            seconds = perf_counter() - started
            self._passes.append(lambda: seconds)
        return output

    def read(self, tokens: list[int] | Tensor, cache: KVCache) -> Output:
        """Take in a chunk of a prompt."""
        return self.model.read(tokens, cache)

    def tap(self, taps: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        self.model.tap(taps)
        self.taps = self.model.taps

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings."""
        return self.model.embed(tokens)

    def score(self, hidden: Tensor) -> Tensor:
        """The output matrix alone."""
        return self.model.score(hidden)

    def spent(self) -> float:
        """Seconds of all passes since this was last asked; waits for the card."""
        finish(self.pool.layout.device)
        seconds = sum(each() for each in self._passes)
        self._passes.clear()
        return seconds


@dataclass(frozen=True)
class Subject:
    """Whose passes are measured."""

    target: Model
    dtype: str
    bytes_read: int  # of weights, by a pass over one row

    def fits(self, context: int, room: int) -> bool:
        """Whether so long a text and what is written behind it are within the window."""
        return context + max(room, STEPS) + max(WIDTHS) < self.target.window


def subjects(profile: Profile, dtypes: Sequence[str], longest: int, threads: int) -> Iterator[Subject]:
    """The model that writes, alone, in one dtype after the other; `threads` 0 leaves their number to the engine."""
    for dtype in dtypes:
        alone = {"models.draft": "", "models.heads": (), "models.dtype": dtype, "limits.context": 2 * longest + 2048}
        target = load_engine(profile.override(alone)).voice.target
        if threads:
            torch.set_num_threads(threads)
        yield Subject(target, dtype, bytes_read(profile, target))
        del target
        gc.collect()


def bytes_read(profile: Profile, target: Model) -> int:
    """Bytes of weights that a pass over one row reads: all but a table of embeddings that is not also multiplied."""
    config = json.loads((find_model(profile.models.target) / "config.json").read_text())
    table = target.embed(torch.zeros(1, dtype=torch.long, device=target.pool.layout.device))
    is_read = config.get("tie_word_embeddings", False)
    return target.bytes - (0 if is_read else config["vocab_size"] * table.shape[-1] * table.element_size())


def measured(subject: Subject, context: int, rounds: int, progress: Progress) -> PassRow:
    """One row: rounds of every width, a few steps of the engine, and a look at the bandwidth, one after the other."""
    target, dtype = subject.target, subject.dtype
    widths = [width for width in WIDTHS if width <= target.widest]
    found = [*_rounds(target, context, rounds, lambda number: progress(f"{dtype}, {context} tokens: round {number}"))]
    moved = subject.bytes_read + context * target.pool.layout.bytes_per_row
    return PassRow(
        dtype, context, torch.get_num_threads(),
        one=Spread.of(each.seconds[1] for each in found),
        growth={width: Spread.of(each.seconds[width] / each.seconds[1] for each in found) for width in widths},
        bandwidth=median(each.bandwidth for each in found),
        share=Spread.of(moved / each.seconds[1] / each.bandwidth for each in found),
        host=Spread.of(each.host for each in found),
        waits=median(each.waits for each in found) if target.pool.layout.device.type == "cuda" else None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Round:
    seconds: Mapping[int, float]  # by rows
    bandwidth: float
    host: float
    waits: float


def _rounds(target: Model, context: int, rounds: int, progress: Callable[[int], None]) -> Iterator[_Round]:
    """The first round warms up and is not told."""
    device, watched = target.pool.layout.device, Clocked(target)
    with standing(watched, context) as writing:
        for number in range(rounds + 1):
            bandwidth = read_bandwidth(device)
            seconds = {width: pass_seconds(target, writing.cache, width) for width in WIDTHS if width <= target.widest}
            host, waits = _steps(writing, watched)
            if number:
                progress(number)
                yield _Round(seconds, bandwidth, host, waits)


@contextmanager
def standing(target: Model, context: int, room: int = STEPS) -> Generator[Writing]:
    """A text of so many tokens that nobody read, with room for more: its rows hold noise."""
    writing = Writing(target, (Drafter(),))
    writing.tokens = [ROOT_TOKEN] * (context + 1)
    with target.pool.seated(writing.cache, writing.rows_for(room)):
        for stack in writing.cache.rows().stacks.values():
            stack.normal_()
        writing.cache.commit(list(range(context)))
        yield writing
    writing.close()


def pass_seconds(target: Model, cache: KVCache, width: int) -> float:
    """A pass over a chain of so many nodes, of which nothing stays."""
    tree, device = DraftTree(ROOT_TOKEN), target.pool.layout.device
    tree.add_chain([ROOT_TOKEN] * (width - 1))
    finish(device)
    begun = perf_counter()
    target.forward(tree, cache)
    finish(device)
    return perf_counter() - begun


def _steps(writing: Writing, watched: Clocked) -> tuple[float, float]:
    """Seconds of a plain step outside its pass, and how often it waits for the card."""
    length, device = len(writing.tokens), watched.pool.layout.device
    watched.spent()
    with _counting_waits(device) as waits:
        begun = perf_counter()
        count = len(list(writing.steps(Plan(Drafter(), Sampler(), budget=0, limit=STEPS))))
        finish(device)
        seconds = perf_counter() - begun
    writing.cut(length)
    return (seconds - watched.spent()) / count, len(waits) / count


@contextmanager
def _counting_waits(device: torch.device) -> Generator[Sequence[Any]]:
    """What torch says of calls that wait for the card; nothing where there is none."""
    if device.type != "cuda":
        yield []
        return
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield said
    finally:
        torch.cuda.set_sync_debug_mode("default")


def read_bandwidth(device: torch.device) -> float:
    """Bytes a second: reading on a CPU, with the threads of a pass; reading and writing of a copy on a card."""
    numbers, is_card = _numbers(device), device.type == "cuda"
    place = torch.empty_like(numbers) if is_card else None
    quickest = float("inf")
    for _ in range(3):
        finish(device)
        begun = perf_counter()
        if place is not None:
            place.copy_(numbers)
        else:
            numbers.sum()
        finish(device)
        quickest = min(quickest, perf_counter() - begun)
    return BANDWIDTH_BYTES * (2 if is_card else 1) / quickest


def finish(device: torch.device) -> None:
    """Wait until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def as_table(rows: Sequence[PassRow]) -> str:
    """Rows as Markdown: c(M) is a pass over M rows by a pass over one."""
    wide = [width for width in (rows[0].growth if rows else ()) if width > 1]
    head = ["dtype", "context", "t(1) ms", *(f"c({width})" for width in wide), "of bandwidth", "host ms", "waits"]
    return table(head, (_cells(row, wide) for row in rows))


def _cells(row: PassRow, wide: Sequence[int]) -> list[str]:
    growth = [f"{row.growth[width].middle:.2f}" if width in row.growth else "-" for width in wide]
    share, waits = f"{row.share.middle:.0%} of {row.bandwidth / 1e9:.0f} GB/s", row.waits
    return [
        row.dtype, str(row.context), row.one.shown(1, 1000), *growth, share, row.host.shown(2, 1000),
        "-" if waits is None else f"{waits:g}",
    ]  # fmt: skip


def as_json(rows: Sequence[Any]) -> str:
    """Rows as a JSON array, seconds as seconds."""
    return json.dumps([asdict(row) for row in rows], indent=1)


@lru_cache(maxsize=1)
def _numbers(device: torch.device) -> Tensor:
    return torch.ones(BANDWIDTH_BYTES // 4, device=device)
