"""A hybrid network of noise, of the shapes that the catalog has: its passes in graphs, and its prompts.

Its texts are read as prompts are, because only rows that a pass recorded can be committed to recurrent states.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from specchat.devices import FLOAT_FORMAT, GGUF_FORMAT, synchronize
from specchat.engine.decode import Generation
from specchat.engine.drafter import Drafter
from specchat.forward.llama.llama import LlamaModel
from specchat.hub.catalog import catalog
from specchat.weights.llama_families import network_config
from specchat_bench.chain_passes import ROOT_TOKEN
from specchat_bench.gpu.gpu_bench import GpuBench
from specchat_bench.gpu.kernels import BLOCKS
from specchat_bench.gpu.networks import FEW_LAYERS, NoiseNetwork, fits_twice, network_lines, network_shapes
from specchat_bench.gpu.report import Line

MODEL = "Qwen/Qwen3.5-9B"
WEIGHTS = {"nf4": "nf4", BLOCKS: GGUF_FORMAT, FLOAT_FORMAT: FLOAT_FORMAT}  # and the format of `--weights`
# What the catalog leaves out, because no size depends on it.
COMMON: Mapping[str, Any] = {
    "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip
SMALL_SIZES: Mapping[str, int] = {
    "hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "vocab_size": 512, "num_hidden_layers": 2, "full_attention_interval": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
}  # fmt: skip
ROOM, LAST_TOKEN = 64, 500


def hybrid_lines(bench: GpuBench) -> Iterator[Line]:
    entry = catalog()[MODEL]
    config = {**entry.config, **COMMON, **({} if bench.has_clock else SMALL_SIZES)}
    if not fits_twice(bench, network_shapes(network_config(config))):
        config["num_hidden_layers"] = FEW_LAYERS
    name, prompts = entry.name if bench.has_clock else "tiny Qwen3.5", Prompts(bench)
    for weights, quant_format in WEIGHTS.items():
        layers = config["num_hidden_layers"]
        network = NoiseNetwork(f"{name}, {layers} layers, {weights}", config, weights, quant_format)
        for line in network_lines(bench, network, prompts.read):
            yield {**line, **prompts.take_seconds()}


class Prompts:
    """Reads the texts behind which passes are measured, and tells how long that took."""

    def __init__(self, bench: GpuBench) -> None:
        self._bench = bench
        self._seconds: float | None = None

    @contextmanager
    def read(self, model: LlamaModel, tokens: int) -> Generator[Generation]:
        """A text of so many tokens with room for a pass, read twice: kernels are compiled before the second time."""
        for is_timed in (False, True):
            generation, started_at = Generation(model, (Drafter(),)), perf_counter()
            generation.tokens = [index % LAST_TOKEN for index in range(tokens)] + [ROOT_TOKEN]
            with model.pool.acquire_slot(generation.cache, generation.rows_needed(ROOM)):
                for _length in generation.prefill():
                    pass
                if is_timed:
                    synchronize(self._bench.device)
                    self._seconds = perf_counter() - started_at
                    yield generation
            generation.close()

    def take_seconds(self) -> Line:
        seconds, self._seconds = self._seconds, None
        return {} if seconds is None else {"prompt s": seconds if self._bench.has_clock else None}
