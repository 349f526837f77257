"""Mixtures of experts of noise: the products of all chosen experts of a pass, and passes of whole networks in graphs.

Each row chooses its experts at random, as another buffer does each time, so that weights come from the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specchat.devices import FLOAT_FORMAT, GGUF_FORMAT
from specchat.forward.linear.block_linear import MXFP4
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat_bench.gpu.gpu_bench import GpuBench
from specchat_bench.gpu.kernels import (
    BLOCKS,
    W4A16,
    KernelCheck,
    NamedCheck,
    check_lines,
    dequantized,
    linear_of_noise,
)
from specchat_bench.gpu.networks import NoiseNetwork, network_lines
from specchat_bench.gpu.report import Line

TURNS = 8  # choices of experts that calls take turns with


@dataclass(frozen=True)
class ExpertShape:
    """A published mixture of experts, in the formats that people run it in."""

    family: str
    hidden: int
    inner: int
    experts: int
    choices: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    formats: tuple[str, ...]

    @property
    def products(self) -> Mapping[str, tuple[int, int]]:
        return {"gate_up": (2 * self.inner, self.hidden), "down": (self.hidden, self.inner)}

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "model_type": self.family, "hidden_size": self.hidden, "intermediate_size": self.inner,
            "moe_intermediate_size": self.inner, "num_experts": self.experts, "num_local_experts": self.experts,
            "num_experts_per_tok": self.choices, "norm_topk_prob": True, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": self.head_size,
            "vocab_size": self.vocabulary, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "hidden_act": "silu", "tie_word_embeddings": False, "decoder_sparse_step": 1,
        }  # fmt: skip
        return config | ({"sliding_window": 128} if self.family == "gpt_oss" else {})


SHAPES = {
    "Qwen3-30B-A3B": ExpertShape("qwen3_moe", 2048, 768, 128, 8, 48, 32, 4, 128, 151936, (BLOCKS, W4A16)),
    "gpt-oss-20b": ExpertShape("gpt_oss", 2880, 2880, 32, 4, 24, 64, 8, 64, 201088, (MXFP4,)),
}
SMALL_SHAPES = {
    "tiny Qwen3-MoE": ExpertShape("qwen3_moe", 256, 256, 4, 2, 1, 4, 2, 64, 512, (BLOCKS,)),
    "tiny gpt-oss": ExpertShape("gpt_oss", 64, 64, 4, 2, 1, 4, 2, 16, 512, (MXFP4,)),
}


def expert_product_lines(bench: GpuBench) -> Iterator[Line]:
    yield from check_lines(_checks(bench), bench)


def expert_pass_lines(bench: GpuBench) -> Iterator[Line]:
    for name, shape in shapes(bench).items():
        for weights in shape.formats:
            quant_format = {BLOCKS: GGUF_FORMAT}.get(weights, FLOAT_FORMAT)
            yield from network_lines(bench, NoiseNetwork(f"{name}, {weights}", shape.config, weights, quant_format))


def shapes(bench: GpuBench) -> Mapping[str, ExpertShape]:
    return SHAPES if bench.has_clock else SMALL_SHAPES


def _checks(bench: GpuBench) -> Iterator[NamedCheck]:
    for name, shape in shapes(bench).items():
        for weights in (*shape.formats, *(("int8", "float") if shape.family == "qwen3_moe" else ())):
            for layer in shape.products:
                yield f"{name}, {weights} {layer}", partial(_product, shape, weights, layer)


def stack_of_noise(shape: ExpertShape, weights: str, layer: str, bench: GpuBench) -> ExpertLinear:
    linears = (linear_of_noise(weights, shape.products[layer], bench) for _ in range(shape.experts))
    stack = ExpertLinear.of(linears, shape.experts, bench.dtype, bench.device)
    if stack.stack is None:
        raise NotImplementedError(f"no kernel for experts in {weights} here")
    return stack


def chosen_experts(shape: ExpertShape, bench: GpuBench) -> Tensor:
    """Those of each row, in each turn. [turns, rows, choices]"""
    scores = torch.rand(TURNS, bench.sizes.most_rows, shape.experts, device=bench.device)
    return scores.topk(shape.choices).indices


def _product(shape: ExpertShape, weights: str, layer: str, bench: GpuBench) -> KernelCheck:
    stack, chosen = stack_of_noise(shape, weights, layer, bench), chosen_experts(shape, bench)
    most = bench.sizes.most_rows
    rows = bench.noise(most, shape.products[layer][1])
    expert_bytes = stack.bytes // shape.experts

    def compute(first: int, last: int, turn: int) -> Tensor:
        by_expert = stack.sort(chosen[turn, first:last])
        return by_expert.scatter(stack(by_expert.gather(rows[first:last]), by_expert)).flatten(1)

    def exact() -> Tensor:
        def outputs(row: int, expert: int) -> Tensor:
            return dequantized(stack.experts[expert]).double() @ rows[row].double()

        exact_rows = [torch.cat([outputs(row, each) for each in chosen[0, row].tolist()]) for row in range(most)]
        return torch.stack(exact_rows)

    def moved_bytes(count: int) -> int:
        touched = [len(each.unique()) for each in chosen[:, :count].flatten(1)]
        return round(sum(touched) / TURNS * expert_bytes)

    return KernelCheck(compute, exact, moved_bytes, TURNS)
