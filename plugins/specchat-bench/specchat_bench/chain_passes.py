"""Seconds of forward passes over chains of tokens, behind a KV cache of noise: its length costs, its values do not.

Knows neither what the seconds are compared with nor how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from specchat.devices import synchronize
from specchat.engine.cache import KVCache
from specchat.engine.decode import Generation
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree

ROOT_TOKEN = 400


@dataclass(frozen=True)
class MedianRange:
    median: float
    lowest: float
    highest: float

    @classmethod
    def from_values(cls, values: Iterable[float]) -> MedianRange:
        """Of at least one value."""
        ordered = sorted(values)
        return cls(median(ordered), ordered[0], ordered[-1])

    def to_text(self, digits: int, unit: float = 1.0) -> str:
        """`1.23 (1.20-1.31)`, in milliseconds when the unit is 1000."""
        middle, low, high = (f"{value * unit:.{digits}f}" for value in (self.median, self.lowest, self.highest))
        return f"{middle} ({low}-{high})"


@contextmanager
def random_context(target: Model, context: int, extra_tokens: int = 8) -> Generator[Generation]:
    """A generation whose KV cache holds noise for so many tokens, with room for more."""
    generation = Generation(target, (Drafter(),))
    generation.tokens = [ROOT_TOKEN] * (context + 1)
    with target.pool.acquire_slot(generation.cache, generation.rows_needed(extra_tokens)):
        layout = target.pool.layout
        for layer, (heads, key_size, value_size) in enumerate(layout.shapes):
            keys, values = (
                torch.randn(1, heads, context, size, dtype=layout.dtype, device=layout.device)
                for size in (key_size, value_size)
            )
            generation.cache.write(layer, keys, values)
        generation.cache.commit(list(range(context)))
        yield generation
    generation.close()


def chain_pass_seconds(target: Model, cache: KVCache, tokens: Sequence[int]) -> float:
    """Seconds of a pass over a chain of these tokens; nothing is committed."""
    tree, device = DraftTree(tokens[0]), target.pool.layout.device
    tree.add_chain(list(tokens[1:]))
    synchronize(device)
    started_at = perf_counter()
    target.forward(tree, cache)
    synchronize(device)
    return perf_counter() - started_at


def start_timer(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Start an event timer of the GPU. Its result stops it, and returns a function for the seconds.

    Nothing waits until the seconds are asked for, which needs `synchronize` before.
    """
    events = torch.get_device_module(device).Event
    started, ended = events(enable_timing=True), events(enable_timing=True)
    started.record()

    def stop() -> Callable[[], float]:
        ended.record()
        return lambda: started.elapsed_time(ended) / 1000

    return stop
