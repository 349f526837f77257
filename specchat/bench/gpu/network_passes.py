"""Passes of a network of noise in each format of weights, as the engine runs them, and a draft of an EAGLE-3 head."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter

import torch

from specchat.bench.chain_passes import ROOT_TOKEN, chain_pass_seconds, random_context
from specchat.bench.gpu.gpu_bench import BenchSizes, GpuBench
from specchat.bench.gpu.kernel_checks import ranges
from specchat.bench.gpu.own_kernels import required_int4_matmul
from specchat.bench.gpu.random_network import W4A16, float_bytes, random_eagle3, random_llama
from specchat.bench.gpu.report import Line, attempt
from specchat.devices import gpu_memory, return_cached_memory
from specchat.drafters.heads.spec import EAGLE3
from specchat.drafters.registry import DraftingResources, build_drafter
from specchat.engine.cache import KVCache
from specchat.engine.decode import Generation
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.llama.llama import LlamaModel

WEIGHTS = ("float", "nf4", "int8", "fp8", W4A16)
ROUNDS, WARM_ROUNDS = 5, 2
FEW_LAYERS = 4  # where the whole network does not fit beside what is quantized, and for the target of a head
PROMPT_TOKENS, BUDGET = 200, 16


def pass_lines(bench: GpuBench) -> Iterator[Line]:
    """For each format, a line for each context; the first says how long loading and capturing took."""
    sizes = bench.sizes
    if 2 * float_bytes(sizes) > gpu_memory(bench.device).free_bytes:
        sizes = replace(sizes, layers=FEW_LAYERS)
    for weights in WEIGHTS:
        loaded = list[LlamaModel]()
        name = f"{sizes.layers} layers, {weights}"
        yield attempt(f"{name}, loaded", partial(_load, bench, sizes, weights, loaded))
        for context in sizes.pass_contexts if loaded else ():
            yield attempt(f"{name}, context {context}", partial(_pass_line, loaded[0], sizes, context, bench.has_clock))
        loaded.clear()
        _free(bench)


def _load(bench: GpuBench, sizes: BenchSizes, weights: str, loaded: list[LlamaModel]) -> Line:
    if weights == W4A16:
        required_int4_matmul(bench)
    started_at = perf_counter()
    model = random_llama(bench, sizes, weights, max(sizes.pass_contexts) + 512)
    loaded_at = perf_counter()
    model.capture_graphs(lambda _done, _total: None)
    loaded.append(model)
    graphs = model.graphs
    return {
        "GB": model.bytes / 1e9, "load s": loaded_at - started_at, "capture s": perf_counter() - loaded_at,
        "graphs": len(graphs) if graphs is not None and not graphs.is_disabled else 0,
        "claims own bits": model.is_batch_invariant,
    }  # fmt: skip


def _pass_line(model: LlamaModel, sizes: BenchSizes, context: int, has_clock: bool) -> Line:
    """Milliseconds of the host from a call to its end; what it waits for is in the graph of the next larger width."""
    milliseconds, bits = dict[str, float | None](), list[tuple[int, torch.Tensor]]()
    with random_context(model, context) as generation:
        for count in sizes.pass_rows:
            seconds = [_seconds(model, generation.cache, count) for _ in range(WARM_ROUNDS + ROUNDS)]
            milliseconds[f"ms {count}"] = 1000 * median(seconds[WARM_ROUNDS:]) if has_clock else None
            tree = DraftTree(ROOT_TOKEN)
            tree.add_chain(list(range(ROOT_TOKEN + 1, ROOT_TOKEN + count)))
            bits.append((count, model.forward(tree, generation.cache).logits[0].clone()))
    groups = list[list[int]]()
    for count, row in bits:
        known = next((each for each in groups if torch.equal(dict(bits)[each[0]], row)), None)
        groups.append([count]) if known is None else known.append(count)
    return {**milliseconds, "batches alike": " / ".join(ranges(each) for each in groups)}


def _seconds(model: LlamaModel, cache: KVCache, count: int) -> float:
    return chain_pass_seconds(model, cache, range(ROOT_TOKEN, ROOT_TOKEN + count))


def eagle_lines(bench: GpuBench) -> Iterator[Line]:
    """A draft as the engine asks for it: one graph, and one wait for the packed tree."""
    sizes = replace(bench.sizes, layers=FEW_LAYERS)
    yield attempt("EAGLE-3, tree of 5 levels of 4", partial(_eagle_line, bench, sizes))
    _free(bench)


def _eagle_line(bench: GpuBench, sizes: BenchSizes) -> Line:
    target = random_llama(bench, sizes, "float", max(sizes.pass_contexts) + 512)
    head = random_eagle3(bench, sizes, target)
    target.set_hidden_state_layers(head.hidden_state_layers)
    started_at = perf_counter()
    head.capture_graphs(target)
    capture_seconds = perf_counter() - started_at
    drafter = build_drafter(EAGLE3, DraftingResources(target, heads={EAGLE3: head}))
    assert drafter is not None, "its head is there"
    generation, sampler = Generation(target, (drafter,)), Sampler()
    generation.replace_tokens([ROOT_TOKEN + index % 64 for index in range(PROMPT_TOKENS)])
    with target.pool.acquire_slot(generation.cache, generation.rows_needed(BUDGET)):
        for _length in generation.prefill():
            pass
        seen = sampler.make_seen_tokens(generation.tokens, target.vocab_size, bench.device)
        context = DraftContext(generation.tokens, sampler, BUDGET, seen)
        tree = drafter.propose(context)
        milliseconds = 1000 * bench.host_seconds(lambda: drafter.propose(context))
        kernels = bench.kernels_of(lambda: drafter.propose(context))
    return {
        "GB of the head": head.bytes / 1e9, "draft tokens": len(tree) - 1, "capture s": capture_seconds,
        "kernels": kernels, "ms": milliseconds if bench.has_clock else None,
    }  # fmt: skip


def _free(bench: GpuBench) -> None:
    gc.collect()
    return_cached_memory(bench.device)
