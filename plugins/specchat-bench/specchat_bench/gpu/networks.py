"""Networks of noise, made on the device: their passes in each format of weights, and a draft of an EAGLE-3 head.

What a pass costs depends on shapes, not on weights. Nothing is written to a disk.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specchat.devices import FLOAT_FORMAT, GGUF_FORMAT, gpu_memory
from specchat.drafters.eagle.eagle3_format import detect_eagle3
from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.spec import EAGLE3
from specchat.drafters.registry import DraftingResources, build_drafter
from specchat.engine.cache_sizes import arena_rows
from specchat.engine.decode import Generation
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda.cuda_graphs import CudaGraphCapture, GraphSettings
from specchat.forward.linear.block_linear import MXFP4, block_matmul
from specchat.forward.linear.int4_linear import Int4Weight
from specchat.forward.linear.packed_linear import StoredBlocks
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.llama_families import network_config
from specchat.weights.llama_manifest import read_dimensions, required_tensors
from specchat.weights.llama_weights import network_weights, own_model
from specchat.weights.tensor_files import TensorFiles, TensorLocation, WeightLoader
from specchat_bench.chain_passes import ROOT_TOKEN, random_context
from specchat_bench.gpu.gpu_bench import WEIGHT_STD, BenchSizes, GpuBench, alike
from specchat_bench.gpu.kernels import BLOCKS, W4A16, random_blocks, random_int4, required_int4_matmul
from specchat_bench.gpu.report import Line, attempt

SOURCE = Path("noise")
WEIGHTS = ("float", "nf4", "int8", "fp8", W4A16, BLOCKS)
FEW_LAYERS = 4  # where the whole network does not fit beside what is quantized, and for the target of a head
PROMPT_TOKENS, BUDGET = 200, 16
DRAFT_VOCABULARY = 32000
PAIR_INPUTS = tuple(f"{part}_proj.weight" for part in "qkv")  # of EAGLE-3: embedding and hidden state
Shapes = Mapping[str, tuple[int, ...]]
Text = AbstractContextManager[Generation]
TextOf = Callable[[LlamaModel, int], Text]  # a text of so many tokens, with room for a pass


@dataclass(frozen=True)
class RandomTensors(TensorFiles):
    """Tensors of these shapes that no file holds: norms are ones, tables of tokens zeros, all others noise."""

    bench: GpuBench
    has_4_bits: bool = False
    has_blocks: bool = False

    @classmethod
    def of(
        cls, bench: GpuBench, shapes: Shapes, *, has_4_bits: bool = False, has_blocks: bool = False
    ) -> RandomTensors:
        locations = {name: TensorLocation(SOURCE, name, shapes[name]) for name in shapes}
        return cls(SOURCE, locations, bench, has_4_bits, has_blocks)

    def read_tensor(self, name: str) -> Tensor:
        shape = self.shape(name)
        if name == "d2t":
            return torch.zeros(shape, dtype=torch.long)
        is_norm = len(shape) == 1
        return torch.ones_like(self.bench.noise(*shape)) if is_norm else self.bench.noise(*shape, std=WEIGHT_STD)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        return self.bench.noise(last - first, *self.shape(name)[1:], std=WEIGHT_STD)

    def has_int4_weight(self, name: str) -> bool:
        return self.has_4_bits and ".layers." in name

    def int4_weight(self, name: str) -> Int4Weight | None:
        outputs, inputs = self.shape(name)
        return random_int4(self.bench, (outputs, inputs)) if self.has_int4_weight(name) else None

    def stored_blocks(self, name: str) -> StoredBlocks | None:
        outputs, inputs = self.shape(name)
        return random_blocks(self.bench, BLOCKS, (outputs, inputs)) if self.has_blocks else None

    def stacked_blocks(self, name: str, _index: int) -> Tensor:
        """Those of gpt-oss are published in MXFP4."""
        _experts, inputs, outputs = self.shape(name)
        return random_blocks(self.bench, MXFP4, (outputs, inputs)).read_rows(0, outputs)


@dataclass(frozen=True)
class NoiseNetwork:
    """A network of noise. `weights`: a weight format, or what the files hold it in."""

    name: str
    config: Mapping[str, Any]
    weights: str
    quant_format: str

    @classmethod
    def llama(cls, sizes: BenchSizes, weights: str) -> NoiseNetwork:
        quant_format = {W4A16: FLOAT_FORMAT, BLOCKS: GGUF_FORMAT}.get(weights, weights)
        return cls(f"{sizes.layers} layers, {weights}", llama_config(sizes), weights, quant_format)

    def load(self, bench: GpuBench) -> LlamaModel:
        """With graphs, not yet captured."""
        config, context_window = network_config(self.config), max(bench.sizes.pass_contexts) + 512
        has_blocks = self.weights == BLOCKS
        files = RandomTensors.of(bench, network_shapes(config), has_4_bits=self.weights == W4A16, has_blocks=has_blocks)
        loader = WeightLoader(files, bench.dtype, bench.device, self.quant_format, has_blocks)
        dimensions = read_dimensions(config, SOURCE)
        loaded = network_weights(loader, config, dimensions, bench.device, context_window)
        if not loaded.are_capturable:
            raise NotImplementedError(f"no kernel for experts in {self.weights} here")
        graphs = GraphSettings(CudaGraphCapture(bench.device), arena_rows(context_window))
        return own_model(dimensions, loaded, context_window, BatchLimits(prefill_chunk=512), graphs)


def random_llama(bench: GpuBench, sizes: BenchSizes, weights: str) -> LlamaModel:
    """A network of these sizes with graphs, not yet captured. `weights` is a weight format, W4A16 or BLOCKS."""
    return NoiseNetwork.llama(sizes, weights).load(bench)


def random_eagle3(bench: GpuBench, sizes: BenchSizes, target: LlamaModel) -> DraftHead:
    """An EAGLE-3 head for such a network, with a draft vocabulary as published heads have."""
    hidden, tokens, first_layer = sizes.hidden, min(DRAFT_VOCABULARY, sizes.vocabulary), "model.layers.0."
    layer = {name: shape for name, shape in llama_shapes(sizes).items() if name.startswith(first_layer)}
    pairs = {name: (shape[0], 2 * hidden) for name, shape in layer.items() if name.endswith(PAIR_INPUTS)}
    shapes = {name.replace(first_layer, "midlayer."): shape for name, shape in (layer | pairs).items()} | {
        "midlayer.hidden_norm.weight": (hidden,), "norm.weight": (hidden,), "fc.weight": (hidden, 3 * hidden),
        "lm_head.weight": (tokens, hidden), "d2t": (tokens,),
    }  # fmt: skip
    config = llama_config(sizes) | {
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}, "draft_vocab_size": tokens,
        "architectures": ["LlamaForCausalLMEagle3"],
    }  # fmt: skip
    spec = detect_eagle3(HeadCheckpoint(RandomTensors.of(bench, shapes), config))
    assert spec is not None, "these tensors are those of EAGLE-3"
    return load_head(spec, target, None, bench.device)


def llama_config(sizes: BenchSizes) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": sizes.hidden, "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_size, "vocab_size": sizes.vocabulary, "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip


def llama_shapes(sizes: BenchSizes) -> Shapes:
    return network_shapes(llama_config(sizes))


def network_shapes(config: dict[str, Any]) -> Shapes:
    shapes = dict(required_tensors(TensorFiles(SOURCE, {}), read_dimensions(config, SOURCE), config))
    return shapes | {"lm_head.weight": (config["vocab_size"], config["hidden_size"])}


def fits_twice(bench: GpuBench, shapes: Shapes) -> bool:
    """Whether the memory holds a network in floats of 16 bits, and what is quantized of it."""
    return 2 * 2 * sum(map(prod, shapes.values())) <= gpu_memory(bench.device).free_bytes


def pass_lines(bench: GpuBench) -> Iterator[Line]:
    """For each format, a line for each context; the first says how long loading and capturing took."""
    sizes = bench.sizes
    if not fits_twice(bench, llama_shapes(sizes)):
        sizes = replace(sizes, layers=FEW_LAYERS)
    for weights in WEIGHTS:
        yield from network_lines(bench, NoiseNetwork.llama(sizes, weights))


def network_lines(bench: GpuBench, network: NoiseNetwork, text_of: TextOf = random_context) -> Iterator[Line]:
    """Loading and capturing, and a pass behind each context, which `text_of` makes."""
    loaded = list[LlamaModel]()
    yield attempt(f"{network.name}, loaded", partial(_load, bench, network, loaded))
    for context in bench.sizes.pass_contexts if loaded else ():
        yield attempt(f"{network.name}, context {context}", partial(_pass_line, loaded[0], bench, context, text_of))
    loaded.clear()
    _free()


def _load(bench: GpuBench, network: NoiseNetwork, loaded: list[LlamaModel]) -> Line:
    if network.weights == W4A16:
        required_int4_matmul(bench)
    if network.weights == BLOCKS and block_matmul(bench.device, bench.dtype, BLOCKS) is None:
        raise NotImplementedError(f"no kernel for blocks of {BLOCKS} here")
    started_at = perf_counter()
    model = network.load(bench)
    loaded_at = perf_counter()
    model.capture_graphs(lambda _done, _total: None)
    loaded.append(model)
    return {
        "GB": model.bytes / 1e9, "load s": loaded_at - started_at, "capture s": perf_counter() - loaded_at,
        "graphs": graph_count(model), "claims own bits": model.is_batch_invariant,
    }  # fmt: skip


def graph_count(model: object) -> int:
    """The captured graphs of a model."""
    graphs = getattr(model, "graphs", None)
    return len(graphs) if graphs is not None and not graphs.is_disabled else 0


def _pass_line(model: LlamaModel, bench: GpuBench, context: int, text_of: TextOf) -> Line:
    """Milliseconds of the host from a call to its end; what it waits for is in the graph of the next larger width."""
    milliseconds, bits = dict[str, float | None](), list[tuple[int, Tensor]]()
    with text_of(model, context) as generation:
        for count in bench.sizes.pass_rows:
            tree = DraftTree(ROOT_TOKEN)
            tree.add_chain(list(range(ROOT_TOKEN + 1, ROOT_TOKEN + count)))
            run = partial(model.forward, tree, generation.cache)
            milliseconds[f"ms {count}"] = 1000 * bench.host_seconds(run) if bench.has_clock else None
            bits.append((count, run().logits[0].clone()))
    return {**milliseconds, "batches alike": alike(bits)}


def eagle_lines(bench: GpuBench) -> Iterator[Line]:
    """A draft as the engine asks for it: one graph, and one wait for the packed tree."""
    yield attempt(
        "EAGLE-3, tree of 5 levels of 4", partial(_eagle_line, bench, replace(bench.sizes, layers=FEW_LAYERS))
    )
    _free()


def _eagle_line(bench: GpuBench, sizes: BenchSizes) -> Line:
    target = random_llama(bench, sizes, FLOAT_FORMAT)
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
        propose = partial(drafter.propose, DraftContext(generation.tokens, sampler, BUDGET, seen))
        tree, seconds, kernels = propose(), bench.host_seconds(propose), bench.kernels_of(propose)
    return {
        "GB of the head": head.bytes / 1e9, "draft tokens": len(tree) - 1, "capture s": capture_seconds,
        "kernels": kernels, "ms": 1000 * seconds if bench.has_clock else None,
    }  # fmt: skip


def _free() -> None:
    gc.collect()
    torch.cuda.empty_cache()
