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
from specchat.bench.markdown_table import markdown_table
from specchat.bench.median_range import MedianRange
from specchat.engine.cache import KVCache
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model, ModelOutput
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.models.load import find_model
from specchat.profile import Profile

ROW_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CONTEXTS = (128, 4096, 16384)
STEPS_PER_ROUND = 8  # whole steps of the engine in a round
BANDWIDTH_BYTES = 2**28  # more than any cache holds
ROOT_TOKEN = 400

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PassCosts:
    """One dtype at one context. Ratios are middles of rounds, each against a pass over one row of the same round."""

    dtype: str
    context: int
    threads: int
    single_row_seconds: MedianRange  # seconds of a pass over one row
    relative_cost_by_rows: Mapping[int, MedianRange]  # by rows: seconds against those of one row
    bytes_per_second: float  # bytes a second that this machine reads, or that this card copies
    bandwidth_utilization: MedianRange  # of that bandwidth, for weights and rows that a pass over one row reads
    host_seconds: MedianRange  # seconds of a plain step that are not its pass
    device_syncs: float | None  # times that a plain step waits for the card; None without one


class TimedModel:
    """A model that remembers how long its passes took: on a card by the card's own clock, without waiting for it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.vocab_size, self.context_window, self.prefill_chunk, self.max_rows = (
            model.vocab_size,
            model.context_window,
            model.prefill_chunk,
            model.max_rows,
        )
        self.supports_trees, self.pool, self.bytes, self.hidden_state_layers = (
            model.supports_trees,
            model.pool,
            model.bytes,
            model.hidden_state_layers,
        )
        self._is_cuda = model.pool.layout.device.type == "cuda"
        self._pass_timers: list[Callable[[], float]] = []

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """Score every node."""
        if self._is_cuda:
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            output = self.model.forward(tree, cache)
            ended.record()
            self._pass_timers.append(lambda: begun.elapsed_time(ended) / 1000)
        else:
            started = perf_counter()
            output = self.model.forward(tree, cache)
            seconds = perf_counter() - started
            self._pass_timers.append(lambda: seconds)
        return output

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """Take in a chunk of a prompt."""
        return self.model.prefill(tokens, cache)

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        self.model.set_hidden_state_layers(hidden_state_layers)
        self.hidden_state_layers = self.model.hidden_state_layers

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings."""
        return self.model.embed(tokens)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """The output matrix alone."""
        return self.model.compute_logits(hidden_states)

    def take_pass_seconds(self) -> float:
        """Seconds of all passes since this was last asked; waits for the card."""
        synchronize(self.pool.layout.device)
        seconds = sum(each() for each in self._pass_timers)
        self._pass_timers.clear()
        return seconds


@dataclass(frozen=True)
class MeasuredModel:
    """Whose passes are measured."""

    target: Model
    dtype: str
    weight_bytes_per_pass: int  # of weights, by a pass over one row

    def fits(self, context: int, extra_tokens: int) -> bool:
        """Whether so long a text and what is written behind it are within the window."""
        return context + max(extra_tokens, STEPS_PER_ROUND) + max(ROW_COUNTS) < self.target.context_window


def load_models(profile: Profile, dtypes: Sequence[str], max_context: int, threads: int) -> Iterator[MeasuredModel]:
    """The model that writes, alone, in one dtype after the other; `threads` 0 leaves their number to the engine."""
    for dtype in dtypes:
        alone = {
            "models.draft": "",
            "models.heads": (),
            "models.dtype": dtype,
            "limits.context": 2 * max_context + 2048,
        }
        target = load_engine(profile.override(alone)).models.target
        if threads:
            torch.set_num_threads(threads)
        yield MeasuredModel(target, dtype, weight_bytes_per_pass(profile, target))
        del target
        gc.collect()


def weight_bytes_per_pass(profile: Profile, target: Model) -> int:
    """Bytes of weights that a pass over one row reads: all but a table of embeddings that is not also multiplied."""
    config = json.loads((find_model(profile.models.target) / "config.json").read_text())
    table = target.embed(torch.zeros(1, dtype=torch.long, device=target.pool.layout.device))
    is_read = config.get("tie_word_embeddings", False)
    return target.bytes - (0 if is_read else config["vocab_size"] * table.shape[-1] * table.element_size())


def measure_pass_costs(subject: MeasuredModel, context: int, rounds: int, progress: Progress) -> PassCosts:
    """One row: rounds of every width, a few steps of the engine, and a look at the bandwidth, one after the other."""
    target, dtype = subject.target, subject.dtype
    widths = [width for width in ROW_COUNTS if width <= target.max_rows]
    found = [
        *_measure_rounds(target, context, rounds, lambda number: progress(f"{dtype}, {context} tokens: round {number}"))
    ]
    moved = subject.weight_bytes_per_pass + context * target.pool.layout.bytes_per_row
    return PassCosts(
        dtype, context, torch.get_num_threads(),
        single_row_seconds=MedianRange.from_values(each.seconds[1] for each in found),
        relative_cost_by_rows={width: MedianRange.from_values(each.seconds[width] / each.seconds[1] for each in found) for width in widths},
        bytes_per_second=median(each.bytes_per_second for each in found),
        bandwidth_utilization=MedianRange.from_values(moved / each.seconds[1] / each.bytes_per_second for each in found),
        host_seconds=MedianRange.from_values(each.host_seconds for each in found),
        device_syncs=median(each.device_syncs for each in found) if target.pool.layout.device.type == "cuda" else None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Round:
    seconds: Mapping[int, float]  # by rows
    bytes_per_second: float
    host_seconds: float
    device_syncs: float


def _measure_rounds(target: Model, context: int, rounds: int, progress: Callable[[int], None]) -> Iterator[_Round]:
    """The first round warms up and is not told."""
    device, watched = target.pool.layout.device, TimedModel(target)
    with random_context(watched, context) as writing:
        for number in range(rounds + 1):
            bandwidth = measure_bandwidth(device)
            seconds = {
                width: pass_seconds(target, writing.cache, width) for width in ROW_COUNTS if width <= target.max_rows
            }
            host, waits = _measure_steps(writing, watched)
            if number:
                progress(number)
                yield _Round(seconds, bandwidth, host, waits)


@contextmanager
def random_context(target: Model, context: int, extra_tokens: int = STEPS_PER_ROUND) -> Generator[Generation]:
    """A text of so many tokens that nobody read, with room for more: its rows hold noise."""
    writing = Generation(target, (Drafter(),))
    writing.tokens = [ROOT_TOKEN] * (context + 1)
    with target.pool.acquire_slot(writing.cache, writing.rows_needed(extra_tokens)):
        for stack in writing.cache.require_slot().stacks.values():
            stack.normal_()
        writing.cache.commit(list(range(context)))
        yield writing
    writing.close()


def pass_seconds(target: Model, cache: KVCache, row_count: int) -> float:
    """A pass over a chain of so many nodes, of which nothing stays."""
    tree, device = DraftTree(ROOT_TOKEN), target.pool.layout.device
    tree.add_chain([ROOT_TOKEN] * (row_count - 1))
    synchronize(device)
    begun = perf_counter()
    target.forward(tree, cache)
    synchronize(device)
    return perf_counter() - begun


def _measure_steps(writing: Generation, watched: TimedModel) -> tuple[float, float]:
    """Seconds of a plain step outside its pass, and how often it waits for the card."""
    length, device = len(writing.tokens), watched.pool.layout.device
    watched.take_pass_seconds()
    with _count_device_syncs(device) as waits:
        begun = perf_counter()
        count = len(
            list(
                writing.decode(
                    GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=STEPS_PER_ROUND)
                )
            )
        )
        synchronize(device)
        seconds = perf_counter() - begun
    writing.truncate(length)
    return (seconds - watched.take_pass_seconds()) / count, len(waits) / count


@contextmanager
def _count_device_syncs(device: torch.device) -> Generator[Sequence[Any]]:
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


def measure_bandwidth(device: torch.device) -> float:
    """Bytes a second: reading on a CPU, with the threads of a pass; reading and writing of a copy on a card."""
    numbers, is_card = _bandwidth_buffer(device), device.type == "cuda"
    place = torch.empty_like(numbers) if is_card else None
    quickest = float("inf")
    for _ in range(3):
        synchronize(device)
        begun = perf_counter()
        if place is not None:
            place.copy_(numbers)
        else:
            numbers.sum()
        synchronize(device)
        quickest = min(quickest, perf_counter() - begun)
    return BANDWIDTH_BYTES * (2 if is_card else 1) / quickest


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def as_table(rows: Sequence[PassCosts]) -> str:
    """Rows as Markdown: c(M) is a pass over M rows by a pass over one."""
    wide = [width for width in (rows[0].relative_cost_by_rows if rows else ()) if width > 1]
    head = ["dtype", "context", "t(1) ms", *(f"c({width})" for width in wide), "of bandwidth", "host ms", "waits"]
    return markdown_table(head, (_cells(row, wide) for row in rows))


def _cells(row: PassCosts, wide: Sequence[int]) -> list[str]:
    growth = [
        f"{row.relative_cost_by_rows[width].median:.2f}" if width in row.relative_cost_by_rows else "-"
        for width in wide
    ]
    share, waits = f"{row.bandwidth_utilization.median:.0%} of {row.bytes_per_second / 1e9:.0f} GB/s", row.device_syncs
    return [
        row.dtype, str(row.context), row.single_row_seconds.to_text(1, 1000), *growth, share, row.host_seconds.to_text(2, 1000),
        "-" if waits is None else f"{waits:g}",
    ]  # fmt: skip


def as_json(rows: Sequence[Any]) -> str:
    """Rows as a JSON array, seconds as seconds."""
    return json.dumps([asdict(row) for row in rows], indent=1)


@lru_cache(maxsize=1)
def _bandwidth_buffer(device: torch.device) -> Tensor:
    return torch.ones(BANDWIDTH_BYTES // 4, device=device)
