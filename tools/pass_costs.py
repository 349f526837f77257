"""The cost of a forward pass: by rows, by context, by memory bandwidth, and the host time of a step.

Both sides of a ratio are measured in the same round, so that other load on the machine slows both. The KV cache before
a pass holds noise: its length costs time, its values do not.
"""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor

from specchat.devices import CUDA, FLOAT_FORMAT, kind_of, synchronize
from specchat.engine.cache import KVCache
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model, ModelOutput, SampledOutput, SamplingModel
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import DraftTree
from specchat.hub.architecture import EMBEDDING
from specchat.hub.config_architecture import active_parameters, architecture_from_config
from specchat.hub.find_models import find_model
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_bench.chain_passes import ROOT_TOKEN, MedianRange, chain_pass_seconds, random_context, start_timer
from specchat_bench.columns import markdown_table

ROW_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STEPS_PER_ROUND = 8  # engine steps in a round
BANDWIDTH_BYTES = 2**28  # larger than any CPU cache

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PassCosts:
    """One dtype and format of the KV cache at one context.

    Ratios are medians over rounds, each against a one-row pass of the same round.
    """

    dtype: str
    kv_cache: str
    context: int
    threads: int
    single_row_seconds: MedianRange  # of a pass over one row
    relative_cost_by_rows: Mapping[int, MedianRange]  # c(M), by rows
    bytes_per_second: float  # that this CPU reads, or this GPU copies
    bandwidth_utilization: MedianRange  # share of it in a one-row pass
    host_seconds: MedianRange  # of a plain step outside its pass
    device_syncs: float | None  # of a plain step; None where torch cannot count them


class TimedModel:
    """A model that records the seconds of its passes; on a GPU with its events, without a synchronization."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._device = model.pool.layout.device
        self._pass_timers: list[Callable[[], float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        with self._timed():
            return self.model.forward(tree, cache)

    def forward_and_sample(
        self, tree: DraftTree, cache: KVCache, sampler: Sampler, rows: LogitRows, seen: SeenTokens | None = None
    ) -> SampledOutput | None:
        """As the model; with a CUDA graph, sampling is a part of the pass."""
        if not isinstance(self.model, SamplingModel):
            return None
        with self._timed():
            return self.model.forward_and_sample(tree, cache, sampler, rows, seen)

    @contextmanager
    def _timed(self) -> Generator[None]:
        if kind_of(self._device).is_gpu:
            stop = start_timer(self._device)
            yield
            self._pass_timers.append(stop())
        else:
            started_at = perf_counter()
            yield
            seconds = perf_counter() - started_at
            self._pass_timers.append(lambda: seconds)

    def take_pass_seconds(self) -> float:
        """Seconds of all passes since the last call; waits for the device."""
        synchronize(self.pool.layout.device)
        seconds = sum(each() for each in self._pass_timers)
        self._pass_timers.clear()
        return seconds


@dataclass(frozen=True)
class MeasuredModel:
    target: Model
    dtype: str
    kv_cache: str
    weight_bytes_per_pass: int  # read by a one-row pass

    def fits(self, context: int) -> bool:
        return context + STEPS_PER_ROUND + max(ROW_COUNTS) < self.target.context_window


def load_models(
    profile: Profile, dtypes: Sequence[str], max_context: int, threads: int, kv_caches: Sequence[str] = (FLOAT_FORMAT,)
) -> Iterator[MeasuredModel]:
    """Load the target alone, in one dtype and format after the other; `threads` 0 leaves the number to the engine."""
    for dtype, kv_cache in product(dtypes, kv_caches):
        overrides = {
            "models.draft": "",
            "models.heads": (),
            "models.dtype": dtype,
            "models.kv_cache": kv_cache,
            "limits.context": 2 * max_context + 2048,
        }
        target = load_engine(profile.override(overrides)).models.target
        if threads:
            torch.set_num_threads(threads)
        yield MeasuredModel(target, dtype, kv_cache, weight_bytes_per_pass(profile, target))
        del target
        gc.collect()


def weight_bytes_per_pass(profile: Profile, target: Model) -> int:
    """Bytes of weights that a one-row pass reads.

    Not an embedding table that is not also the output matrix, and of a mixture only the experts that a row selects.
    """
    config = json.loads((find_model(profile.models.target) / "config.json").read_text())
    architecture, device = architecture_from_config(config), target.pool.layout.device
    embedded = target.embed(torch.zeros(1, dtype=torch.long, device=device))
    table = 0 if architecture.is_tied else architecture.parameters_of_kind(EMBEDDING)
    active_share = (active_parameters(config, architecture) - table) / (architecture.parameters - table)
    return round((target.bytes - table * embedded.element_size()) * active_share)


def measure_pass_costs(loaded: MeasuredModel, context: int, rounds: int, progress: Progress) -> PassCosts:
    target, dtype = loaded.target, loaded.dtype
    widths = [width for width in ROW_COUNTS if width <= target.max_rows]
    measured = list(
        _measure_rounds(target, context, rounds, lambda number: progress(f"{dtype}, {context} tokens: round {number}"))
    )
    counts_waits = kind_of(target.pool.layout.device) is CUDA
    read_bytes = loaded.weight_bytes_per_pass + context * target.pool.layout.bytes_per_row
    return PassCosts(
        dtype, loaded.kv_cache, context, torch.get_num_threads(),
        single_row_seconds=MedianRange.from_values(each.seconds[1] for each in measured),
        relative_cost_by_rows={
            width: MedianRange.from_values(each.seconds[width] / each.seconds[1] for each in measured)
            for width in widths
        },
        bytes_per_second=median(each.bytes_per_second for each in measured),
        bandwidth_utilization=MedianRange.from_values(
            read_bytes / each.seconds[1] / each.bytes_per_second for each in measured
        ),
        host_seconds=MedianRange.from_values(each.host_seconds for each in measured),
        device_syncs=median(each.device_syncs for each in measured) if counts_waits else None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Round:
    seconds: Mapping[int, float]  # by rows
    bytes_per_second: float
    host_seconds: float
    device_syncs: float


def _measure_rounds(target: Model, context: int, rounds: int, progress: Callable[[int], None]) -> Iterator[_Round]:
    """Run the rounds; the first one warms up and is dropped."""
    device, timed = target.pool.layout.device, TimedModel(target)
    with random_context(cast("Model", timed), context, STEPS_PER_ROUND) as generation:
        for number in range(rounds + 1):
            bandwidth = measure_bandwidth(device)
            seconds = {
                width: pass_seconds(target, generation.cache, width) for width in ROW_COUNTS if width <= target.max_rows
            }
            host, syncs = _measure_steps(generation, timed)
            if number:
                progress(number)
                yield _Round(seconds, bandwidth, host, syncs)


def pass_seconds(target: Model, cache: KVCache, row_count: int) -> float:
    """Seconds of a pass over a chain of so many different tokens; nothing is committed.

    The second of two: the first pays for what was computed before it. A GPU uploads a CUDA graph that is not the last.
    """
    tokens = range(ROOT_TOKEN, ROOT_TOKEN + row_count)
    chain_pass_seconds(target, cache, tokens)
    return chain_pass_seconds(target, cache, tokens)


def _measure_steps(generation: Generation, timed: TimedModel) -> tuple[float, float]:
    """Seconds of a plain step outside its pass, and its device synchronizations."""
    length, device = len(generation.tokens), timed.pool.layout.device
    timed.take_pass_seconds()
    with _count_device_syncs(device) as syncs:
        started_at = perf_counter()
        count = len(
            list(
                generation.decode(
                    GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=STEPS_PER_ROUND)
                )
            )
        )
        synchronize(device)
        seconds = perf_counter() - started_at
    generation.truncate(length)
    return (seconds - timed.take_pass_seconds()) / count, len(syncs) / count


@contextmanager
def _count_device_syncs(device: torch.device) -> Generator[Sequence[Any]]:
    """The warnings of torch about synchronizing calls, where it has them (CUDA)."""
    set_mode = getattr(getattr(torch, device.type), "set_sync_debug_mode", lambda _mode: None)
    set_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    finally:
        set_mode("default")


def measure_bandwidth(device: torch.device) -> float:
    """Bytes per second: reads on a CPU, with the threads of a pass; reads and writes of a copy on a GPU."""
    numbers, is_gpu = _bandwidth_buffer(device), kind_of(device).is_gpu
    copy = torch.empty_like(numbers) if is_gpu else None
    fastest_seconds = float("inf")
    for _ in range(3):
        synchronize(device)
        started_at = perf_counter()
        if copy is not None:
            copy.copy_(numbers)
        else:
            numbers.sum()
        synchronize(device)
        fastest_seconds = min(fastest_seconds, perf_counter() - started_at)
    return BANDWIDTH_BYTES * (2 if is_gpu else 1) / fastest_seconds


def as_table(rows: Sequence[PassCosts]) -> str:
    """Rows as Markdown; c(M) is the time of a pass over M rows relative to one row."""
    widths = [width for width in (rows[0].relative_cost_by_rows if rows else ()) if width > 1]
    costs = [f"c({width})" for width in widths]
    header = ["dtype", "KV cache", "context", "t(1) ms", *costs, "bandwidth", "host ms", "GPU syncs"]
    return markdown_table(header, (_cells(row, widths) for row in rows))


def _cells(row: PassCosts, widths: Sequence[int]) -> list[str]:
    relative_costs = [
        f"{row.relative_cost_by_rows[width].median:.2f}" if width in row.relative_cost_by_rows else "-"
        for width in widths
    ]
    share, syncs = f"{row.bandwidth_utilization.median:.0%} of {row.bytes_per_second / 1e9:.0f} GB/s", row.device_syncs
    return [
        row.dtype, row.kv_cache, str(row.context), row.single_row_seconds.to_text(1, 1000), *relative_costs, share,
        row.host_seconds.to_text(2, 1000),
        "-" if syncs is None else f"{syncs:g}",
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _bandwidth_buffer(device: torch.device) -> Tensor:
    return torch.ones(BANDWIDTH_BYTES // 4, device=device)
