"""The self-test of early exit: after which layer of a target drafting pays most.

No config says it: a checkpoint of LayerSkip is an ordinary one. The target writes a short text after each prompt, its
hidden states show what every layer would have drafted, and a few timed passes show what that costs. The layer with the
most tokens per second is stored, so that later starts do not test again. Knows no session and no profile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from specchat.drafters.heads.selftest import sample_text, target_fingerprint
from specchat.drafters.self_drafter import CHAIN_LENGTH
from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.model import SelfDraftingModel
from specchat.engine.tree import DraftTree
from specchat.paths import cache_folder, write_atomically

PROMPTS = ("The capital of France is", "def mean(values):\n    ", "Once upon a time there was a")
TIMED_RUNS = 3  # the fastest counts, because other load only adds time
CACHE_VERSION = 1  # entries of other versions are ignored

Pass = Callable[[], Tensor]
Stopwatch = Callable[[Pass], float]


def seconds_of(compute: Pass) -> float:
    """The fastest of a few runs, until the result is on the host."""
    compute().cpu()  # the first one compiles and allocates
    runs = list[float]()
    for _ in range(TIMED_RUNS):
        started_at = perf_counter()
        compute().cpu()
        runs.append(perf_counter() - started_at)
    return min(runs)


def find_exit_layer(
    target: SelfDraftingModel,
    prompts: Sequence[list[int]],
    folder: Path | None = None,
    stopwatch: Stopwatch = seconds_of,
) -> int:
    """The number of first layers that should draft: tested at the first start with this target, later read.

    0 for a target of one layer. `folder` replaces the user's cache folder.
    """
    layers = target.layer_count
    if layers < 2:
        return 0
    path = (folder or cache_folder()) / "early_exit" / f"{_cache_key(target)}.json"
    stored = _read(path)
    if stored is None or not 0 < stored < layers:
        stored = _best_layer(target, prompts, stopwatch)
        _write(path, stored)
    return stored


def _best_layer(target: SelfDraftingModel, prompts: Sequence[list[int]], stopwatch: Stopwatch) -> int:
    rates = acceptance_by_layer(target, prompts)
    step_seconds = _step_seconds(target, prompts[0], stopwatch)
    speeds = {layer: _tokens_per_step(rate) / step_seconds(layer) for layer, rate in rates.items()}
    return max(speeds, key=lambda layer: speeds[layer])


@torch.inference_mode()
def acceptance_by_layer(target: SelfDraftingModel, prompts: Sequence[list[int]]) -> dict[int, float]:
    """The mean probability that the target accepts what the first layers draft, by their number."""
    layers, previous = range(1, target.layer_count), target.hidden_state_layers
    accepted = dict.fromkeys(layers, 0.0)
    target.set_hidden_state_layers(tuple(layers))
    try:
        for prompt in prompts:
            sample = sample_text(target, list(prompt))
            for layer, states in zip(layers, sample.hidden_states.chunk(len(layers), dim=-1), strict=True):
                drafted = target.exit_logits(states).argmax(-1, keepdim=True)
                accepted[layer] += float(sample.probabilities.gather(1, drafted).mean())
    finally:
        target.set_hidden_state_layers(previous)
    return {layer: total / len(prompts) for layer, total in accepted.items()}


def _tokens_per_step(rate: float) -> float:
    """Tokens of a step with a chain of CHAIN_LENGTH draft tokens, each accepted with this probability."""
    return sum(rate**depth for depth in range(CHAIN_LENGTH + 1))


def _step_seconds(target: SelfDraftingModel, prompt: list[int], stopwatch: Stopwatch) -> Callable[[int], float]:
    """The seconds of a step by the number of drafting layers: measured for the first and the last, linear between."""
    last, cache = target.layer_count - 1, target.pool.open()
    with target.pool.acquire_slot(cache, len(prompt) + SCRATCH_ROWS):
        target.prefill(prompt, cache)
        length, chain = cache.length, DraftTree(prompt[-1])
        chain.add_chain(prompt[-CHAIN_LENGTH:])

        def exit_after(layer: int) -> float:
            seconds = stopwatch(lambda: target.forward_early_exit([prompt[-1]], cache, layer))
            cache.rollback(length)
            return seconds

        first_seconds, last_seconds = exit_after(1), exit_after(last)
        verify_seconds = stopwatch(lambda: target.forward(chain, cache).logits)
    target.pool.close(cache)
    slope = (last_seconds - first_seconds) / max(last - 1, 1)
    return lambda layer: verify_seconds + CHAIN_LENGTH * (first_seconds + slope * (layer - 1))


def _cache_key(target: SelfDraftingModel) -> str:
    key = f"{CACHE_VERSION} {CHAIN_LENGTH} {target.pool.layout.device} {target_fingerprint(target)}"
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def _read(path: Path) -> int | None:
    try:
        layer = json.loads(path.read_text(encoding="utf-8"))["layer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return layer if isinstance(layer, int) else None


def _write(path: Path, layer: int) -> None:
    """Store the layer. When that fails, the next start repeats the test."""
    try:
        write_atomically(path, json.dumps({"layer": layer}))
    except OSError:
        return
