"""The first EAGLE, whose weights EAGLE-2 and HASS share: one layer over `fc` of an embedding and a feature.

As SafeAILab saves it, with the norms that some trainers add, and in the spelling of vLLM's speculators.
"""

from __future__ import annotations

from specchat.engine.model import FINAL
from specchat.forward.rope import Rope
from specchat.heads.formats.checkpoint_files import Found, block_of, layer_names, layer_trouble, missing
from specchat.heads.spec import EAGLE, TRAINED, HeadSpec

SPELLINGS = (("fc", "layers.0"), ("fusion_fc", "transformer"))  # of what joins a pair, and of the layer
NAMES = {
    "layers.": "layers.",
    "fc.": "join.",
    "embed_layernorm.": "embedding_norm.",  # three norms that some trainers add; the middle one is the layer's own
    "hidden_layernorm.": "layers.0.input_layernorm.",
    "lm_head_layernorm.": "norm.",
    "fusion_fc.": "join.",  # the same in the spelling of speculators
    "transformer.": "layers.0.",
    "embedding_layernorm.": "embedding_norm.",
    "pre_lm_head_layernorm.": "norm.",
}


def first_kind(found: Found) -> HeadSpec | None:
    """EAGLE-1 and EAGLE-2: a layer without a norm in front, and the target's embeddings and output."""
    join = _what_joins(found)
    if join is None:
        return None
    config, tensors = found.text_config, found.renamed(NAMES)
    width = tensors.shape("join.weight")[0]
    block, warnings = block_of(tensors, config, width)
    missing(tensors, layer_names(block.layers))
    has_bias = "has" if "join.bias" in tensors else "has no"
    rope, vocabulary = Rope.of(config), int(config.get("vocab_size") or 0)
    return HeadSpec(
        kind=EAGLE,
        format="speculators EAGLE" if found.speculators_type else "SafeAILab EAGLE-1 or EAGLE-2",
        tensors=tensors,
        evidence=(
            f"{found.shape(f'{join}.weight')}: it joins an embedding and a feature, and {has_bias} bias",
            f"{block.heads} heads over {block.kv_heads} keys; features are read after the final norm",
            "embeddings and output matrix are the target's",
        ),
        warnings=tuple(warnings),
        unsupported=layer_trouble(config, rope),
        block=block,
        rope=rope,
        taps=(FINAL,),
        reads=width,
        vocabulary=vocabulary,
        drafted=vocabulary,
        window=int(config.get("max_position_embeddings") or TRAINED),
    )


def _what_joins(found: Found) -> str | None:
    """The name of the map that joins a pair, where one does."""
    for join, layer in SPELLINGS:
        if f"{join}.weight" in found.tensors and f"{layer}.self_attn.q_proj.weight" in found.tensors:
            width, pair = found.matrix(f"{join}.weight")
            return join if pair == 2 * width and f"{layer}.hidden_norm.weight" not in found.tensors else None
    return None
