"""Multi-token prediction: the extra block that a target was trained with and that its own checkpoint carries.

DeepSeek-V3 and GLM name it `model.layers.{n}`, Qwen3-Next and Qwen3.5 `mtp`, MiMo `model.mtp_layers.0`, and vLLM's
speculators `mtp_layers.0`. The last two spell their tensors alike and join their pairs in opposite orders.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specchat.engine.model import FINAL
from specchat.forward.rope import Rope
from specchat.heads.formats.checkpoint_files import ATTENTION, Found, block_of, layer_names, layer_trouble, missing
from specchat.heads.formats.mla_format import is_latent, latent_block_of, latent_parts, says_how_it_turns
from specchat.heads.formats.moe_format import is_mixture, routing_of, rule_of
from specchat.heads.spec import MTP, HeadSpec, Wiring
from specchat.models.fp8_checkpoints import SCALE, ScaledFiles
from specchat.models.tensor_files import TensorFiles

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
OTHERWISE_SMALL = (".weight_scale", ".weight_packed", ".qweight", ".absmax")  # other ways to store weights in few bits
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
    tensors = _whole(found, found.renamed({prefix + old: new for old, new in spelling.names.items()}))
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
    block, warnings = (latent_block_of if is_latent(tensors) else block_of)(tensors, config, width)
    attention = latent_parts(tensors) if is_latent(tensors) else ATTENTION
    missing(tensors, layer_names(block.layers, is_mixture(tensors), attention))
    rule = rule_of(found, tensors) if is_mixture(tensors) else None
    routing = routing_of(found, tensors, rule) if rule else None
    trouble = layer_trouble(config, rope)
    spec = replace(spec, block=block, rope=rope, warnings=tuple(warnings), unsupported=trouble, routing=routing)
    return _unsure(_told(spec), found, spelling)


def _told(spec: HeadSpec) -> HeadSpec:
    """With what the layer is made of among the evidence, where it is not a Llama's."""
    told, latent = list(spec.evidence), spec.block.latent
    if latent:
        sizes = f"{latent.heads} heads ask latents of {latent.rank} numbers and a turned key of {latent.turned}"
        told.append(f"self_attn.kv_a_proj_with_mqa: {sizes}")
    if scales := sum(name.endswith(SCALE) for name in spec.tensors.places):
        told.append(f"{scales} of its matrices are kept in eight bits with scales; they are loaded in full size")
    return replace(spec, evidence=tuple(told))


def _unsure(spec: HeadSpec, found: Found, spelling: _Spelling) -> HeadSpec:
    """With the readings that only a self-test can tell apart."""
    readings, doubts, latent = [spec], list[str](), spec.block.latent
    if latent and not says_how_it_turns(found.text_config):
        doubts.append("whether neighbours or halves of a head turn together is not said")
        other = replace(spec.block, latent=replace(latent, interleaved=not latent.interleaved))
        readings += [replace(each, block=other) for each in readings]
    if spelling.is_numbered and found.text_config.get("mtp_hidden_states") != "post_norm":
        doubts.append("whether its own output is fed back before or after the last norm differs between engines")
        readings += [replace(each, wiring=replace(each.wiring, feeds_normed=False)) for each in readings]
    return replace(spec, warnings=(*spec.warnings, *doubts)).also(*readings[1:])


def _whole(found: Found, tensors: TensorFiles) -> TensorFiles:
    """The tensors as they are meant: where blocks of a matrix have scales, multiplied with them."""
    if not any(name.endswith(SCALE) for name in tensors.places):
        return tensors
    said = (found.config.get("quantization_config") or {}).get("weight_block_size") or (128, 128)
    rows, columns = (int(size) for size in said)
    if min(rows, columns) < 1:
        raise ValueError(f"blocks of {rows} x {columns} numbers")
    return ScaledFiles(tensors.source, tensors.places, (rows, columns))


def _wiring(found: Found, spelling: _Spelling) -> Wiring:
    """Speculators keeps the norms of the family that it converted."""
    adds_one = found.text_config.get("model_type") in ADDS_ONE
    return replace(spelling.wiring, norms_add_one=True) if adds_one else spelling.wiring


def _trouble(found: Found, spec: HeadSpec) -> str | None:
    names = spec.tensors.places
    if any(".self_attn.indexer." in name for name in names):
        return "an indexer chooses what its layer looks back at"
    if any(name.endswith(OTHERWISE_SMALL) for name in names):
        return "its weights are quantised, and not in blocks of eight bits"
    if any(name.startswith("layers.1.") for name in names):
        return "several layers that take turns"
    if is_mixture(spec.tensors) and rule_of(found, spec.tensors) is None:
        return "its layer is a mixture of experts, chosen by a rule that we have not compared with its family's"
    return None
