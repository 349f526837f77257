"""The GPU that is measured, and its clock: captured graphs, replayed between two events of the device.

Where the device has no events (tests simulate one), nothing is timed, sizes are small, and no time is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from specchat.devices import synchronize
from specchat.forward.cuda.cuda_graphs import CudaGraphCapture
from specchat.forward.fused_ops import AttentionDimensions
from specchat_bench.chain_passes import start_timer
from specchat_bench.gpu.report import Line, ranges

Call = Callable[[], object]
REPLAYS, WARM_REPLAYS = 9, 3
MIN_CALLS, MAX_COPIES = 16, 32  # calls in a graph; buffers that they take turns with
CACHE_FACTOR = 3  # buffers are as large as so many L2 caches together
DEFAULT_CACHE_BYTES = 2**26
WEIGHT_STD = 0.02  # of weights of noise


@dataclass(frozen=True)
class BenchSizes:
    """Shapes of a Llama of 8B parameters, or of a toy for a device that is simulated."""

    hidden: int = 4096
    inner: int = 14336
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    vocabulary: int = 128256
    sampler_vocabulary: int = 151936
    layers: int = 32
    contexts: tuple[int, ...] = (256, 8192, 32768)
    rows: tuple[int, ...] = (1, 4, 5, 8, 16, 17, 32, 64)
    pass_rows: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 16, 17, 32, 64)
    pass_contexts: tuple[int, ...] = (128, 8192)
    copy_bytes: int = 2**30

    @property
    def most_rows(self) -> int:
        return max(self.rows)

    @property
    def row_counts(self) -> Sequence[int]:
        """The batches whose bits are compared."""
        return range(1, self.most_rows + 1) if self.most_rows > 16 else self.rows

    @property
    def attention(self) -> AttentionDimensions:
        return AttentionDimensions(self.heads, self.kv_heads, self.head_size, 1e-5)

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Outputs and inputs of the linear layers of a decoder layer."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "qkv": (queries + 2 * keys, self.hidden), "o": (self.hidden, queries),
            "gate_up": (2 * self.inner, self.hidden), "down": (self.hidden, self.inner),
        }  # fmt: skip


SMALL_SIZES = BenchSizes(
    hidden=64, inner=256, heads=4, kv_heads=2, head_size=16, vocabulary=1024, sampler_vocabulary=512, layers=4,
    contexts=(70,), rows=(1, 5), pass_rows=(1, 5), pass_contexts=(20,), copy_bytes=2**12,
)  # fmt: skip


@dataclass(frozen=True)
class GpuBench:
    device: torch.device
    sizes: BenchSizes = BenchSizes()
    has_clock: bool = True
    dtype: torch.dtype = torch.bfloat16

    @classmethod
    def of(cls, device: torch.device) -> GpuBench:
        """With the sizes of a real model where the device can be timed."""
        bench = cls(device)
        try:
            start_timer(device)()
        except (RuntimeError, AttributeError):  # torch without CUDA makes no events
            return replace(bench, sizes=SMALL_SIZES, has_clock=False)
        return bench

    def noise(self, *shape: int, std: float = 1.0) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype) * std

    @cached_property
    def cache_bytes(self) -> int:
        """Of the last cache before the memory."""
        if not self.has_clock:
            return 0
        properties = torch.cuda.get_device_properties(self.device)
        return getattr(properties, "L2_cache_size", 0) or DEFAULT_CACHE_BYTES  # 0 where torch does not say

    def copies(self, read_bytes: int) -> int:
        """How many buffers take turns, so that each is read from the memory and not from a cache."""
        return min(max(-(-CACHE_FACTOR * self.cache_bytes // max(read_bytes, 1)), 1), MAX_COPIES)

    def timed(self, calls: Sequence[Call], moved_bytes: int, suffix: str = "") -> Line:
        """Microseconds of one call, launch included, and its share of the bandwidth; None without a clock."""
        if not self.has_clock:
            calls[0]()
            return {f"us{suffix}": None, f"bandwidth{suffix}": None}
        repeated = [*calls] * -(-MIN_CALLS // len(calls))
        seconds = self.replay_seconds(repeated) / len(repeated)
        share = moved_bytes / seconds / self.bytes_per_second if self.bytes_per_second else None
        return {f"us{suffix}": 1e6 * seconds, f"bandwidth{suffix}": share}

    def replay_seconds(self, calls: Sequence[Call]) -> float:
        """The median time of calls in one captured graph, on the device."""

        def run() -> None:
            for call in calls:
                call()

        return self.event_seconds(self.capture(run))

    @cached_property
    def capture(self) -> CudaGraphCapture:
        """One for all, because cuBLAS allocates a workspace for every stream that it meets."""
        return CudaGraphCapture(self.device)

    def event_seconds(self, call: Call) -> float:
        """The median time between events of the device before and after a call.

        Before them the device fills a buffer: meanwhile the host launches the call, and the caches lose what it reads.
        """
        timers = list[Callable[[], float]]()
        for _ in range(WARM_REPLAYS + REPLAYS):
            self._filled.zero_()
            stop = start_timer(self.device)
            call()
            timers.append(stop())
        synchronize(self.device)
        return median(each() for each in timers[WARM_REPLAYS:])

    def host_seconds(self, call: Call, rounds: int = REPLAYS) -> float:
        """The median time from a call to the end of what it started, by the clock of the host."""
        seconds = list[float]()
        for _ in range(rounds + 2):
            synchronize(self.device)
            started_at = perf_counter()
            call()
            synchronize(self.device)
            seconds.append(perf_counter() - started_at)
        return median(seconds[2:])

    def kernels_of(self, call: Call) -> int | None:
        """The kernels that a call launches, counted by torch's profiler; None where it sees none."""
        from torch.profiler import ProfilerActivity, profile

        if not self.has_clock:
            return None
        with suppress(RuntimeError):  # without CUPTI
            call()
            synchronize(self.device)
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
                call()
                synchronize(self.device)
            events = [each for each in profiled.events() or () if each.device_type.name == "CUDA"]
            return sum(not each.name.startswith(("Memcpy", "Memset")) for each in events) or None
        return None

    @cached_property
    def _filled(self) -> Tensor:
        return torch.empty(self.sizes.copy_bytes // 2, dtype=torch.uint8, device=self.device)

    @cached_property
    def bytes_per_second(self) -> float | None:
        """Read and written by a copy that is larger than all caches; None without a clock."""
        source = torch.ones(self.sizes.copy_bytes, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * len(source) / self.event_seconds(lambda: target.copy_(source)) if self.has_clock else None


def alike(rows: Iterable[tuple[int, Tensor]]) -> str:
    """The batches whose first row has the same bits, from that row of each number of rows."""
    groups = list[tuple[Tensor, list[int]]]()
    for count, row in rows:
        known = next((counts for bits, counts in groups if torch.equal(bits, row)), None)
        if known is None:
            groups.append((row.clone(), known := []))
        known.append(count)
    return " / ".join(ranges(counts) for _bits, counts in groups)
