"""Loads the mixture of experts of a layer, in the layouts that checkpoints have.

| layout | tensors |
|---|---|
| one tensor for each expert and projection | `experts.3.gate_proj.weight`; Mixtral names them w1, w3 and w2 |
| stacks of all experts | `experts.gate_up_proj` [E, 2 inner, D] and `experts.down_proj` [E, D, inner] |
| stacks of gpt-oss | the same transposed; gate and up alternate; `experts.gate_up_proj_bias` [E, 2 inner] and so on |

A GGUF file is read as the first layout, with biases where it has some.

Experts are read one after the other. Knows names of tensors; knows no config.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from specchat.errors import ModelError
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import QuantLinear, invariant_linear
from specchat.forward.llama.decoder_layer import GatedMlp
from specchat.forward.llama.moe import ExpertSizes, MixtureOfExperts, Router, Routing, SharedExpert
from specchat.forward.llama.variations import SILU, Activation
from specchat.weights.llama_families import ExpertNames
from specchat.weights.tensor_files import TensorFiles, WeightLoader

Shape = tuple[int, ...]


def load_moe(
    loader: WeightLoader,
    prefix: str,
    names: ExpertNames,
    routing: Routing,
    router_dtype: torch.dtype | None = None,
    activation: Activation = SILU,
) -> MixtureOfExperts:
    """The mixture of experts of a layer with this prefix. `router_dtype` None: the dtype of the other weights."""
    router = _load_router(loader, f"{prefix}.{names.router}", routing, router_dtype)
    experts = loader.files.shape(f"{prefix}.{names.router}.weight")[0]
    dtype = loader.dtype or router.dtype
    gate_up_proj, down_proj = _load_experts(loader, f"{prefix}.{names.experts}", names, experts, dtype)
    shared = _load_shared(loader, f"{prefix}.{names.shared}") if names.shared else None
    return MixtureOfExperts(router, gate_up_proj, down_proj, shared, activation)


def expert_tensors(
    files: TensorFiles, prefix: str, names: ExpertNames, hidden_size: int, sizes: ExpertSizes
) -> Iterator[tuple[str, Shape]]:
    """The tensors that `load_moe` reads in any case, and their shapes."""
    experts, inner = sizes.experts, sizes.intermediate_size
    yield f"{prefix}.{names.router}.weight", (experts, hidden_size)
    if names.shared:
        yield f"{prefix}.{names.shared}_gate.weight", (1, hidden_size)
        yield from _mlp_tensors(f"{prefix}.{names.shared}", ExpertNames(), hidden_size, sizes.shared_intermediate_size)
    stacks = {
        f"{prefix}.{names.experts}.gate_up_proj": (2 * inner, hidden_size),
        f"{prefix}.{names.experts}.down_proj": (hidden_size, inner),
    }
    if names.has_gpt_oss_stacks:
        yield f"{prefix}.{names.router}.bias", (experts,)
    if names.has_gpt_oss_stacks and f"{prefix}.{names.experts}.0.{names.down}.weight" not in files:
        for stack, (outputs, inputs) in stacks.items():
            yield stack, (experts, inputs, outputs)
            yield f"{stack}_bias", (experts, outputs)
        return
    if all(stack in files for stack in stacks):
        yield from ((stack, (experts, *shape)) for stack, shape in stacks.items())
        return
    for index in range(experts):
        yield from _mlp_tensors(f"{prefix}.{names.experts}.{index}", names, hidden_size, inner)


def _mlp_tensors(prefix: str, names: ExpertNames, hidden_size: int, inner: int) -> Iterator[tuple[str, Shape]]:
    for name in names.gate_up:
        yield f"{prefix}.{name}.weight", (inner, hidden_size)
    yield f"{prefix}.{names.down}.weight", (hidden_size, inner)


def _load_router(loader: WeightLoader, name: str, routing: Routing, dtype: torch.dtype | None) -> Router:
    """Routers stay floats: a rounding would choose other experts."""
    exact = replace(loader, dtype=dtype or loader.dtype)
    weight, bias = exact.tensor(f"{name}.weight"), exact.optional(f"{name}.bias")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ModelError(f"{loader.files.source}: {name}.bias has the shape {list(bias.shape)}, not [{len(weight)}]")
    loader.loaded_bytes += exact.loaded_bytes
    return Router(invariant_linear(weight, bias), weight.dtype, routing)


def _load_experts(
    loader: WeightLoader, prefix: str, names: ExpertNames, experts: int, dtype: torch.dtype
) -> tuple[ExpertLinear, ExpertLinear]:
    """Gate and up projection as one layer, and the down projection."""
    is_stacked, is_other = f"{prefix}.gate_up_proj" in loader.files, names.has_gpt_oss_stacks

    def gate_up(source: WeightLoader, each: int) -> QuantLinear:
        if is_stacked:
            return source.stacked(f"{prefix}.gate_up_proj", each, is_transposed=is_other, alternates=is_other)
        return source.linear(*(f"{prefix}.{each}.{name}" for name in names.gate_up))

    def down(source: WeightLoader, each: int) -> QuantLinear:
        if is_stacked:
            return source.stacked(f"{prefix}.down_proj", each, is_transposed=is_other)
        return source.linear(f"{prefix}.{each}.{names.down}")

    if loader.kept is not None and loader.kept.mapped is not None:  # one file: a process can map some ten thousand
        source = replace(loader, kept=None)
        linears = loader.kept.linear(
            prefix, lambda: tuple(make(source, each) for each in range(experts) for make in (gate_up, down))
        )
        loader.loaded_bytes += sum(each.bytes for each in linears)
        return ExpertLinear(linears[0::2]), ExpertLinear(linears[1::2])
    gate_ups, downs = (
        ExpertLinear.of((make(loader, each) for each in range(experts)), experts, dtype, loader.device)
        for make in (gate_up, down)
    )
    return gate_ups, downs


def _load_shared(loader: WeightLoader, prefix: str) -> SharedExpert:
    gate = loader.optional(f"{prefix}_gate.weight")
    return SharedExpert(GatedMlp.load(loader.linear, prefix), None if gate is None else invariant_linear(gate))
