"""Multi-token prediction (MTP): the extra layer that a target was trained with and that its checkpoint contains.

Its name is `model.layers.{n}` in DeepSeek-V3 and GLM, and `mtp` in Qwen3-Next and Qwen3.5. Such a layer may have a
mixture of experts; other names, latent attention and other routings are of a plugin.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.head_checkpoint import (
    ATTENTION_PROJECTIONS,
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.drafters.heads.spec import MTP, HeadDimensions, HeadSpec, Wiring
from specchat.engine.model import FINAL_NORM, Model
from specchat.errors import ModelError
from specchat.forward.llama.moe import Routing
from specchat.forward.llama.rope import Rope
from specchat.own_tables import own_tables
from specchat.plugins.own_plugins import install_line
from specchat.weights.fp8_checkpoints import SCALE_INV_SUFFIX, Fp8TensorFiles, block_shape_from_config
from specchat.weights.tensor_files import TensorFiles, WeightLoader

LATENTS, CORRECTION = ".self_attn.kv_a_proj_with_mqa.", ".mlp.gate.e_score_correction_bias"  # of DeepSeek-V3's layers
MLP_PREFIX = "layers.0.mlp"
STACKED_EXPERTS = (f"{MLP_PREFIX}.experts.gate_up_proj", f"{MLP_PREFIX}.experts.down_proj")
MLP_TENSORS = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))
LAYER_NAMES = {
    part: f"layers.0.{part}" for part in ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")
}


@dataclass(frozen=True)
class NamingScheme:
    format: str
    key_pattern: str  # of the tensor that identifies the family; the first group is the prefix of all its tensors
    names: dict[str, str]
    wiring: Wiring
    reason: str
    is_numbered: bool = False  # the layer has the number after the target's last layer


NAMING_SCHEMES = tuple(
    NamingScheme(**table | {"wiring": Wiring(**table["wiring"])})
    for table in own_tables(__file__, "mtp_names.toml")["schemes"]
)
OTHER_QUANT_SUFFIXES = (".weight_scale", ".weight_packed", ".qweight", ".absmax")
ZERO_CENTERED_NORM_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def softmax_routing(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> Routing | None:
    """The routing of Qwen, told by a tensor that only it has; None for one that is not verified."""
    if f"{MLP_PREFIX}.shared_expert_gate.weight" not in tensors:
        return None
    config = checkpoint.text_config
    return Routing(int(config.get("num_experts_per_tok") or 0), bool(config.get("norm_topk_prob", True)))


@dataclass(frozen=True)
class LayerFormat:
    """How the tensors of a layer are read and computed; here with attention as in Llama and experts as in Qwen."""

    network: Callable[[HeadSpec, WeightLoader, Model], DraftHead] = EagleHead
    read_dimensions: Callable[[TensorFiles, Mapping[str, Any], int], tuple[HeadDimensions, list[str]]] = (
        dimensions_from_tensors
    )
    attention: Callable[[TensorFiles], Iterable[str]] = lambda _tensors: ATTENTION_PROJECTIONS
    read_routing: Callable[[HeadCheckpoint, TensorFiles], Routing | None] = softmax_routing


def detect_mtp(
    checkpoint: HeadCheckpoint, layer: LayerFormat | None = None, schemes: Sequence[NamingScheme] = NAMING_SCHEMES
) -> HeadSpec | None:
    """The MTP layer of a family with one of these names, alone in its folder or in the target's checkpoint."""
    for scheme in schemes:
        if match := checkpoint.first_match(scheme.key_pattern):
            number = match[2] if scheme.is_numbered else None
            return _spec(checkpoint, scheme, match[1], int(number) if number else None, layer)
    return None


def _spec(
    checkpoint: HeadCheckpoint, scheme: NamingScheme, prefix: str, number: int | None, own: LayerFormat | None
) -> HeadSpec:
    config, layer = checkpoint.text_config, own or LayerFormat()
    names = {prefix + old: new for old, new in scheme.names.items()}
    tensors = _dequantized(checkpoint, checkpoint.with_canonical_names(names))
    join, vocab_size = tensors.shape("join.weight"), int(config.get("vocab_size") or 0)
    hidden_size = join[0]
    spec = HeadSpec(
        kind=MTP,
        network=layer.network,
        format=scheme.format,
        tensors=tensors,
        evidence=(f"{prefix}*: an MTP layer; {scheme.reason}", f"pairs are projected by {list(join)}"),
        wiring=_wiring(checkpoint, scheme),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        context_window=int(config.get("max_position_embeddings") or 4096),
        target_layers=number or None,  # a layer saved without its target has number 0
    )
    if reason := (None if own else _reason_of_plugin(tensors)) or _unsupported_reason(spec):
        return replace(spec, unsupported_reason=reason)
    routing = layer.read_routing(checkpoint, tensors) if is_moe(tensors) else None
    if is_moe(tensors) and routing is None:
        reason = "a mixture of experts with a routing that is not verified against its family"
        return replace(spec, unsupported_reason=reason)
    require_tensors(
        tensors, ("embedding_norm.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight")
    )
    rope = Rope.from_config(config)
    dimensions, warnings = layer.read_dimensions(tensors, config, hidden_size)
    require_tensors(tensors, layer_tensor_names(dimensions.layers, is_moe(tensors), layer.attention(tensors)))
    if routing is not None:
        _check_experts(tensors, routing)
    spec = replace(
        spec,
        evidence=(*spec.evidence, *_scale_evidence(tensors)),
        dimensions=dimensions,
        rope=rope,
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        routing=routing,
    )
    return _with_variants(spec, checkpoint, scheme)


def _scale_evidence(tensors: TensorFiles) -> list[str]:
    scales = sum(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations)
    stored = f"{scales} of its matrices are stored in 8 bits with scales; they are dequantized when loaded"
    return [stored] if scales else []


def _with_variants(spec: HeadSpec, checkpoint: HeadCheckpoint, scheme: NamingScheme) -> HeadSpec:
    """The head with the variant that only a self-test can tell apart."""
    if not scheme.is_numbered or checkpoint.text_config.get("mtp_hidden_states") == "post_norm":
        return spec
    warning = "engines differ in whether the next draft step gets the output of the final norm"
    other = replace(spec, wiring=replace(spec.wiring, feeds_back_normed=False))
    return replace(spec, warnings=(*spec.warnings, warning)).with_variants(other)


def _dequantized(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> TensorFiles:
    """The tensors, multiplied with their scales when blocks of their matrices have scales."""
    if not any(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations):
        return tensors
    config = checkpoint.config.get("quantization_config") or {}
    return Fp8TensorFiles(tensors.source, tensors.locations, block_shape_from_config(config))


def _wiring(checkpoint: HeadCheckpoint, scheme: NamingScheme) -> Wiring:
    """Speculators stores norms as the family of the target does."""
    adds_one = checkpoint.text_config.get("model_type") in ZERO_CENTERED_NORM_FAMILIES
    return replace(scheme.wiring, norms_add_one=True) if adds_one else scheme.wiring


def is_of_plugin(names: Iterable[str]) -> bool:
    """Whether a layer has latent attention or the routing of DeepSeek-V3, by the names of its tensors."""
    return any(LATENTS in name or name.endswith(CORRECTION) for name in names)


def _reason_of_plugin(tensors: TensorFiles) -> str | None:
    names = tensors.locations
    return (
        f"layers of DeepSeek-V3 are of a plugin; {install_line('heads')} installs it" if is_of_plugin(names) else None
    )


def _unsupported_reason(spec: HeadSpec) -> str | None:
    names = spec.tensors.locations
    if any(".self_attn.indexer." in name for name in names):
        return "sparse attention with an indexer"
    if any(name.endswith(OTHER_QUANT_SUFFIXES) for name in names):
        return "quantized weights that are not blocks of 8 bits"
    if any(name.startswith("layers.1.") for name in names):
        return "more than one MTP layer"
    return None


def is_moe(tensors: TensorFiles) -> bool:
    return any(name.startswith((f"{MLP_PREFIX}.experts.", f"{MLP_PREFIX}.gate.")) for name in tensors.locations)


def _check_experts(tensors: TensorFiles, routing: Routing) -> None:
    require_tensors(tensors, (f"{MLP_PREFIX}.gate.weight",))
    count = tensors.shape(f"{MLP_PREFIX}.gate.weight")[0]
    shared = "shared_expert" if f"{MLP_PREFIX}.shared_expert_gate.weight" in tensors else "shared_experts"
    parts = (
        f"{MLP_PREFIX}.{shared}",
        *(() if STACKED_EXPERTS[0] in tensors else (f"{MLP_PREFIX}.experts.{expert}" for expert in range(count))),
    )
    require_tensors(tensors, [f"{part}.{name}" for part in parts for name in MLP_TENSORS])
    stacks = [tensors.shape(name) for name in STACKED_EXPERTS if name in tensors]
    if len(stacks) == 1:
        require_tensors(tensors, STACKED_EXPERTS)
    found = stacks[0][0] if stacks else _count_named_experts(tensors)
    if found != count:
        raise ModelError(f"{tensors.source}: the router is for {count} experts, but there are {found}")
    if not 0 < routing.experts_per_token <= count:
        raise ModelError(f"{tensors.source}: {routing.experts_per_token} of {count} experts cannot be selected")


def _count_named_experts(tensors: TensorFiles) -> int:
    pattern = re.compile(rf"{re.escape(MLP_PREFIX)}\.experts\.(\d+)\.")
    return len({match[1] for name in tensors.locations if (match := pattern.match(name))})
