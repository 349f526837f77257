"""Multi-token prediction (MTP): the extra layer that a target was trained with and that its checkpoint contains.

Its name is `model.layers.{n}` in DeepSeek-V3 and GLM, `mtp` in Qwen3-Next and Qwen3.5, `model.mtp_layers.0` in MiMo,
and `mtp_layers.0` in vLLM's speculators. The last two have the same tensor names and opposite orders of pairs.
"""

from dataclasses import dataclass, replace

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.eagle.mtp_layer import (
    is_mla,
    is_moe,
    is_rope_layout_known,
    mla_dimensions_from_tensors,
    mla_projections,
    routing_from_config,
    scoring_func_of,
)
from specchat.drafters.heads.head_checkpoint import (
    ATTENTION_PROJECTIONS,
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.drafters.heads.spec import MTP, HeadDimensions, HeadSpec, Wiring
from specchat.engine.model import FINAL_NORM
from specchat.forward.llama.rope import Rope
from specchat.weights.fp8_checkpoints import SCALE_INV_SUFFIX, Fp8TensorFiles, block_shape_from_config
from specchat.weights.tensor_files import TensorFiles

LAYER_NAMES = {
    part: f"layers.0.{part}" for part in ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")
}

MIMO_NAMES = LAYER_NAMES | {
    "token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm.",
    "input_proj.": "join.", "final_layernorm.": "norm.",
}  # fmt: skip


@dataclass(frozen=True)
class _NamingScheme:
    format: str
    key_pattern: str  # of the tensor that identifies the family; the first group is the prefix of all its tensors
    names: dict[str, str]
    wiring: Wiring
    reason: str
    is_numbered: bool = False  # the layer has the number after the target's last layer


NAMING_SCHEMES = (
    _NamingScheme(
        "DeepSeek-V3 MTP",
        r"((?:model\.)?layers\.(\d+)\.)eh_proj\.weight",
        LAYER_NAMES
        | {"enorm.": "embedding_norm.", "hnorm.": "feature_norm.", "eh_proj.": "join."}
        | {"shared_head.norm.": "norm.", "shared_head.head.": "lm_head.", "embed_tokens.": "embed_tokens."},
        Wiring(feeds_back_normed=True),
        "the embedding is first in a pair",
        is_numbered=True,
    ),
    _NamingScheme(
        "Qwen3-Next MTP",
        r"((?:model\.)?mtp\.)fc\.weight",
        {"fc.": "join.", "pre_fc_norm_embedding.": "embedding_norm.", "pre_fc_norm_hidden.": "feature_norm."}
        | {"layers.": "layers.", "norm.": "norm."},
        Wiring(feeds_back_normed=True, norms_add_one=True),
        "the embedding is first in a pair; norms are stored as weight - 1",
    ),
    _NamingScheme(
        "MiMo MTP",
        r"(model\.mtp_layers\.(?:0)\.)input_proj\.weight",
        MIMO_NAMES,
        Wiring(is_feature_first=True, feeds_back_normed=True),
        "the hidden state is first in a pair",
    ),
    _NamingScheme(
        "speculators MTP",
        r"(mtp_layers\.(?:0)\.)input_proj\.weight",
        MIMO_NAMES,
        Wiring(feeds_back_normed=True),
        "the embedding is first in a pair, although the names are MiMo's",
    ),
)
OTHER_QUANT_SUFFIXES = (".weight_scale", ".weight_packed", ".qweight", ".absmax")
ZERO_CENTERED_NORM_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def detect_mtp(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """The MTP layer of any family, alone in its folder or in the target's checkpoint."""
    for scheme in NAMING_SCHEMES:
        if match := checkpoint.first_match(scheme.key_pattern):
            number = match[2] if scheme.is_numbered else None
            return _spec(checkpoint, scheme, match[1], int(number) if number else None)
    return None


def _spec(checkpoint: HeadCheckpoint, scheme: _NamingScheme, prefix: str, number: int | None) -> HeadSpec:
    config = checkpoint.text_config
    names = {prefix + old: new for old, new in scheme.names.items()}
    tensors = _dequantized(checkpoint, checkpoint.with_canonical_names(names))
    join, vocab_size = tensors.shape("join.weight"), int(config.get("vocab_size") or 0)
    hidden_size = join[0]
    spec = HeadSpec(
        kind=MTP,
        network=EagleHead,
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
    if reason := _unsupported_reason(checkpoint, spec):
        return replace(spec, unsupported_reason=reason)
    require_tensors(
        tensors, ("embedding_norm.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight")
    )
    rope = Rope.from_config(config)
    read_dimensions = mla_dimensions_from_tensors if is_mla(tensors) else dimensions_from_tensors
    dimensions, warnings = read_dimensions(tensors, config, hidden_size)
    attention = mla_projections(tensors) if is_mla(tensors) else ATTENTION_PROJECTIONS
    require_tensors(tensors, layer_tensor_names(dimensions.layers, is_moe(tensors), attention))
    scoring_func = scoring_func_of(checkpoint, tensors) if is_moe(tensors) else None
    spec = replace(
        spec,
        evidence=(*spec.evidence, *_layer_evidence(tensors, dimensions)),
        dimensions=dimensions,
        rope=rope,
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        routing=routing_from_config(checkpoint, tensors, scoring_func) if scoring_func else None,
    )
    return _with_variants(spec, checkpoint, scheme)


def _layer_evidence(tensors: TensorFiles, dimensions: HeadDimensions) -> list[str]:
    """In what the layer differs from Llama's."""
    evidence, mla = list[str](), dimensions.mla
    if mla:
        sizes = (
            f"{mla.heads} heads over latents of size {mla.kv_lora_rank} and a rotary key of size {mla.qk_rope_head_dim}"
        )
        evidence.append(f"self_attn.kv_a_proj_with_mqa: {sizes}")
    if scales := sum(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations):
        evidence.append(f"{scales} of its matrices are stored in 8 bits with scales; they are dequantized when loaded")
    return evidence


def _with_variants(spec: HeadSpec, checkpoint: HeadCheckpoint, scheme: _NamingScheme) -> HeadSpec:
    """The head with the variants that only a self-test can tell apart."""
    variants, warnings, mla = [spec], list[str](), spec.dimensions.mla
    if mla and not is_rope_layout_known(checkpoint.text_config):
        warnings.append("the config does not say whether RoPE is interleaved or half-split")
        other = replace(spec.dimensions, mla=replace(mla, is_rope_interleaved=not mla.is_rope_interleaved))
        variants += [replace(variant, dimensions=other) for variant in variants]
    if scheme.is_numbered and checkpoint.text_config.get("mtp_hidden_states") != "post_norm":
        warnings.append("engines differ in whether the next draft step gets the output of the final norm")
        variants += [replace(variant, wiring=replace(variant.wiring, feeds_back_normed=False)) for variant in variants]
    return replace(spec, warnings=(*spec.warnings, *warnings)).with_variants(*variants[1:])


def _dequantized(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> TensorFiles:
    """The tensors, multiplied with their scales when blocks of their matrices have scales."""
    if not any(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations):
        return tensors
    config = checkpoint.config.get("quantization_config") or {}
    return Fp8TensorFiles(tensors.source, tensors.locations, block_shape_from_config(config))


def _wiring(checkpoint: HeadCheckpoint, scheme: _NamingScheme) -> Wiring:
    """Speculators stores norms as the family of the target does."""
    adds_one = checkpoint.text_config.get("model_type") in ZERO_CENTERED_NORM_FAMILIES
    return replace(scheme.wiring, norms_add_one=True) if adds_one else scheme.wiring


def _unsupported_reason(checkpoint: HeadCheckpoint, spec: HeadSpec) -> str | None:
    names = spec.tensors.locations
    if any(".self_attn.indexer." in name for name in names):
        return "sparse attention with an indexer"
    if any(name.endswith(OTHER_QUANT_SUFFIXES) for name in names):
        return "quantized weights that are not blocks of 8 bits"
    if any(name.startswith("layers.1.") for name in names):
        return "more than one MTP layer"
    if is_moe(spec.tensors) and scoring_func_of(checkpoint, spec.tensors) is None:
        return "a mixture of experts with a routing that is not verified against its family"
    return None
