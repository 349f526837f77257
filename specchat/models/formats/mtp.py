"""Multi-token prediction: the extra block that a target was trained with and that its own checkpoint carries.

DeepSeek-V3 and GLM name it `model.layers.{n}`, Qwen3-Next and Qwen3.5 `mtp`, MiMo `model.mtp_layers.0`, and vLLM's
speculators `mtp_layers.0`. The last two spell their tensors alike and join their pairs in opposite orders.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specchat.engine.model import FINAL
from specchat.models.formats.experts import is_mixture, routing_of, rule_of
from specchat.models.formats.found import Found, block_of, layer_names, layer_trouble, missing
from specchat.models.headspec import MTP, HeadSpec, Wiring
from specchat.models.rope import Rope

LAYER = {part: f"layers.0.{part}" for part in ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")}


@dataclass(frozen=True)
class _Spelling:
    """How one family names its block."""

    format: str
    key: str  # the tensor that gives it away, as a pattern; its first group is all that stands before
    names: dict[str, str]
    wiring: Wiring
    why: str
    is_numbered: bool = False  # by the layers of the target, behind which it stands


SPELLINGS = (
    _Spelling(
        "DeepSeek-V3 MTP",
        r"((?:model\.)?layers\.(\d+)\.)eh_proj\.weight",
        LAYER
        | {"enorm.": "embedding_norm.", "hnorm.": "feature_norm.", "eh_proj.": "join."}
        | {"shared_head.norm.": "norm.", "shared_head.head.": "lm_head.", "embed_tokens.": "embed_tokens."},
        Wiring(feeds_normed=True),
        "the embedding stands first in its pairs",
        is_numbered=True,
    ),
    _Spelling(
        "Qwen3-Next MTP",
        r"((?:model\.)?mtp\.)fc\.weight",
        {"fc.": "join.", "pre_fc_norm_embedding.": "embedding_norm.", "pre_fc_norm_hidden.": "feature_norm."}
        | {"layers.": "layers.", "norm.": "norm."},
        Wiring(feeds_normed=True, norms_add_one=True),
        "the embedding stands first in its pairs; its norms are stored less one",
    ),
    _Spelling(
        "MiMo MTP",
        r"(model\.mtp_layers\.(?:0)\.)input_proj\.weight",
        LAYER
        | {"token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm."}
        | {"input_proj.": "join.", "final_layernorm.": "norm."},
        Wiring(feature_first=True, feeds_normed=True),
        "the feature stands first in its pairs",
    ),
    _Spelling(
        "speculators MTP",
        r"(mtp_layers\.(?:0)\.)input_proj\.weight",
        LAYER
        | {"token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm."}
        | {"input_proj.": "join.", "final_layernorm.": "norm."},
        Wiring(feeds_normed=True),
        "the embedding stands first in its pairs, though the names are MiMo's",
    ),
)
ADDS_ONE = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def multi_token(found: Found) -> HeadSpec | None:
    """The first extra block of any family, alone in its folder or inside the target's checkpoint."""
    for spelling in SPELLINGS:
        if match := found.first(spelling.key):
            number = match[2] if spelling.is_numbered else None
            return _spec(found, spelling, match[1], int(number) if number else None)
    return None


def _spec(found: Found, spelling: _Spelling, prefix: str, number: int | None) -> HeadSpec:
    config = found.text_config
    tensors = found.renamed({prefix + old: new for old, new in spelling.names.items()})
    join = tensors.shape("join.weight")
    width = join[0]
    evidence = [
        f"{prefix}*: a block for multi-token prediction; {spelling.why}",
        f"its pairs are joined by {list(join)}",
    ]
    vocabulary = int(config.get("vocab_size") or 0)
    spec = HeadSpec(
        kind=MTP,
        format=spelling.format,
        tensors=tensors,
        evidence=tuple(evidence),
        wiring=_wiring(found, spelling),
        taps=(FINAL,),
        reads=width,
        vocabulary=vocabulary,
        drafted=vocabulary,
        window=int(config.get("max_position_embeddings") or 4096),
        target_layers=number or None,  # a block saved by itself is number 0
    )
    if trouble := _trouble(found, spec):
        return replace(spec, unsupported=trouble)
    missing(tensors, ("embedding_norm.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight"))
    rope = Rope.of(config)
    block, warnings = block_of(tensors, config, width)
    missing(tensors, layer_names(block.layers, is_mixture(tensors)))
    rule = rule_of(found, tensors) if is_mixture(tensors) else None
    routing = routing_of(found, tensors, rule) if rule else None
    trouble = layer_trouble(config, rope)
    spec = replace(spec, block=block, rope=rope, warnings=tuple(warnings), unsupported=trouble, routing=routing)
    if not spelling.is_numbered or config.get("mtp_hidden_states") == "post_norm":
        return spec
    unsure = "whether its own output is fed back before or after the last norm differs between engines"
    other = replace(spec, wiring=replace(spec.wiring, feeds_normed=False))
    return replace(spec, warnings=(*spec.warnings, unsure)).also(other)


def _wiring(found: Found, spelling: _Spelling) -> Wiring:
    """Speculators keeps the norms of the family that it converted."""
    adds_one = found.text_config.get("model_type") in ADDS_ONE
    return replace(spelling.wiring, norms_add_one=True) if adds_one else spelling.wiring


def _trouble(found: Found, spec: HeadSpec) -> str | None:
    names = spec.tensors.places
    if any(".self_attn.kv_a_proj" in name for name in names):
        return "its layer has latent attention"
    if any(name.startswith("layers.1.") for name in names):
        return "several layers that take turns"
    if is_mixture(spec.tensors) and rule_of(found, spec.tensors) is None:
        return "its layer is a mixture of experts, chosen by a rule that we have not compared with its family's"
    return None
