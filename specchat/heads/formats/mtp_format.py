"""Multi-token prediction: the extra block that a target was trained with and that its own checkpoint carries.

DeepSeek-V3 and GLM name it `model.layers.{n}`, Qwen3-Next and Qwen3.5 `mtp`, MiMo `model.mtp_layers.0`, and vLLM's
speculators `mtp_layers.0`. The last two spell their tensors alike and join their pairs in opposite orders.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specchat.engine.model import FINAL_NORM
from specchat.forward.rope import Rope
from specchat.heads.formats.head_checkpoint import (
    ATTENTION_PROJECTIONS,
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.heads.formats.mla_format import is_mla, is_rope_layout_known, mla_dimensions_from_tensors, mla_projections
from specchat.heads.formats.moe_format import is_moe, routing_from_config, scoring_func_of
from specchat.heads.spec import MTP, HeadSpec, Wiring
from specchat.models.fp8_checkpoints import SCALE_INV_SUFFIX, Fp8TensorFiles
from specchat.models.tensor_files import TensorFiles

LAYER_NAMES = {
    part: f"layers.0.{part}" for part in ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")
}


@dataclass(frozen=True)
class _NamingScheme:
    """How one family names its block."""

    format: str
    key_pattern: str  # the tensor that gives it away, as a pattern; its first group is all that stands before
    names: dict[str, str]
    wiring: Wiring
    reason: str
    is_numbered: bool = False  # by the layers of the target, behind which it stands


NAMING_SCHEMES = (
    _NamingScheme(
        "DeepSeek-V3 MTP",
        r"((?:model\.)?layers\.(\d+)\.)eh_proj\.weight",
        LAYER_NAMES
        | {"enorm.": "embedding_norm.", "hnorm.": "feature_norm.", "eh_proj.": "join."}
        | {"shared_head.norm.": "norm.", "shared_head.head.": "lm_head.", "embed_tokens.": "embed_tokens."},
        Wiring(feeds_back_normed=True),
        "the embedding stands first in its pairs",
        is_numbered=True,
    ),
    _NamingScheme(
        "Qwen3-Next MTP",
        r"((?:model\.)?mtp\.)fc\.weight",
        {"fc.": "join.", "pre_fc_norm_embedding.": "embedding_norm.", "pre_fc_norm_hidden.": "feature_norm."}
        | {"layers.": "layers.", "norm.": "norm."},
        Wiring(feeds_back_normed=True, norms_add_one=True),
        "the embedding stands first in its pairs; its norms are stored less one",
    ),
    _NamingScheme(
        "MiMo MTP",
        r"(model\.mtp_layers\.(?:0)\.)input_proj\.weight",
        LAYER_NAMES
        | {"token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm."}
        | {"input_proj.": "join.", "final_layernorm.": "norm."},
        Wiring(is_feature_first=True, feeds_back_normed=True),
        "the feature stands first in its pairs",
    ),
    _NamingScheme(
        "speculators MTP",
        r"(mtp_layers\.(?:0)\.)input_proj\.weight",
        LAYER_NAMES
        | {"token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm."}
        | {"input_proj.": "join.", "final_layernorm.": "norm."},
        Wiring(feeds_back_normed=True),
        "the embedding stands first in its pairs, though the names are MiMo's",
    ),
)
OTHER_QUANT_SUFFIXES = (
    ".weight_scale",
    ".weight_packed",
    ".qweight",
    ".absmax",
)  # other ways to store weights in few bits
ZERO_CENTERED_NORM_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def detect_mtp(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """The first extra block of any family, alone in its folder or inside the target's checkpoint."""
    for spelling in NAMING_SCHEMES:
        if match := checkpoint.first_match(spelling.key_pattern):
            number = match[2] if spelling.is_numbered else None
            return _spec(checkpoint, spelling, match[1], int(number) if number else None)
    return None


def _spec(checkpoint: HeadCheckpoint, scheme: _NamingScheme, prefix: str, number: int | None) -> HeadSpec:
    config = checkpoint.text_config
    tensors = _dequantized(
        checkpoint, checkpoint.with_canonical_names({prefix + old: new for old, new in scheme.names.items()})
    )
    join = tensors.shape("join.weight")
    width = join[0]
    evidence = [
        f"{prefix}*: a block for multi-token prediction; {scheme.reason}",
        f"its pairs are joined by {list(join)}",
    ]
    vocabulary = int(config.get("vocab_size") or 0)
    spec = HeadSpec(
        kind=MTP,
        format=scheme.format,
        tensors=tensors,
        evidence=tuple(evidence),
        wiring=_wiring(checkpoint, scheme),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=width,
        target_vocab_size=vocabulary,
        draft_vocab_size=vocabulary,
        context_window=int(config.get("max_position_embeddings") or 4096),
        target_layers=number or None,  # a block saved by itself is number 0
    )
    if trouble := _unsupported_reason(checkpoint, spec):
        return replace(spec, unsupported=trouble)
    require_tensors(
        tensors, ("embedding_norm.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight")
    )
    rope = Rope.from_config(config)
    block, warnings = (mla_dimensions_from_tensors if is_mla(tensors) else dimensions_from_tensors)(
        tensors, config, width
    )
    attention = mla_projections(tensors) if is_mla(tensors) else ATTENTION_PROJECTIONS
    require_tensors(tensors, layer_tensor_names(block.layers, is_moe(tensors), attention))
    rule = scoring_func_of(checkpoint, tensors) if is_moe(tensors) else None
    routing = routing_from_config(checkpoint, tensors, rule) if rule else None
    trouble = unsupported_layer_reason(config, rope)
    spec = replace(spec, block=block, rope=rope, warnings=tuple(warnings), unsupported=trouble, routing=routing)
    return _with_variants(_with_layer_evidence(spec), checkpoint, scheme)


def _with_layer_evidence(spec: HeadSpec) -> HeadSpec:
    """With what the layer is made of among the evidence, where it is not a Llama's."""
    told, latent = list(spec.evidence), spec.dimensions.mla
    if latent:
        sizes = f"{latent.heads} heads ask latents of {latent.kv_lora_rank} numbers and a turned key of {latent.qk_rope_head_dim}"
        told.append(f"self_attn.kv_a_proj_with_mqa: {sizes}")
    if scales := sum(name.endswith(SCALE_INV_SUFFIX) for name in spec.tensors.locations):
        told.append(f"{scales} of its matrices are kept in eight bits with scales; they are loaded in full size")
    return replace(spec, evidence=tuple(told))


def _with_variants(spec: HeadSpec, checkpoint: HeadCheckpoint, scheme: _NamingScheme) -> HeadSpec:
    """With the readings that only a self-test can tell apart."""
    readings, doubts, latent = [spec], list[str](), spec.dimensions.mla
    if latent and not is_rope_layout_known(checkpoint.text_config):
        doubts.append("whether neighbours or halves of a head turn together is not said")
        other = replace(spec.dimensions, latent=replace(latent, interleaved=not latent.is_rope_interleaved))
        readings += [replace(each, block=other) for each in readings]
    if scheme.is_numbered and checkpoint.text_config.get("mtp_hidden_states") != "post_norm":
        doubts.append("whether its own output is fed back before or after the last norm differs between engines")
        readings += [replace(each, wiring=replace(each.wiring, feeds_normed=False)) for each in readings]
    return replace(spec, warnings=(*spec.warnings, *doubts)).with_variants(*readings[1:])


def _dequantized(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> TensorFiles:
    """The tensors as they are meant: where blocks of a matrix have scales, multiplied with them."""
    if not any(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations):
        return tensors
    said = (checkpoint.config.get("quantization_config") or {}).get("weight_block_size") or (128, 128)
    rows, columns = (int(size) for size in said)
    if min(rows, columns) < 1:
        raise ValueError(f"blocks of {rows} x {columns} numbers")
    return Fp8TensorFiles(tensors.source, tensors.locations, (rows, columns))


def _wiring(checkpoint: HeadCheckpoint, scheme: _NamingScheme) -> Wiring:
    """Speculators keeps the norms of the family that it converted."""
    adds_one = checkpoint.text_config.get("model_type") in ZERO_CENTERED_NORM_FAMILIES
    return replace(scheme.wiring, norms_add_one=True) if adds_one else scheme.wiring


def _unsupported_reason(checkpoint: HeadCheckpoint, spec: HeadSpec) -> str | None:
    names = spec.tensors.locations
    if any(".self_attn.indexer." in name for name in names):
        return "an indexer chooses what its layer looks back at"
    if any(name.endswith(OTHER_QUANT_SUFFIXES) for name in names):
        return "its weights are quantised, and not in blocks of eight bits"
    if any(name.startswith("layers.1.") for name in names):
        return "several layers that take turns"
    if is_moe(spec.tensors) and scoring_func_of(checkpoint, spec.tensors) is None:
        return "its layer is a mixture of experts, chosen by a rule that we have not compared with its family's"
    return None
