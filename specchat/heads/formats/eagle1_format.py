"""The first EAGLE, whose weights EAGLE-2 and HASS share: one layer over `fc` of an embedding and a feature.

As SafeAILab saves it, with the norms that some trainers add, and in the spelling of vLLM's speculators.
"""

from __future__ import annotations

from specchat.engine.model import FINAL_NORM
from specchat.forward.rope import Rope
from specchat.heads.formats.head_checkpoint import (
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.heads.spec import DEFAULT_TRAINED_LENGTH, EAGLE, HeadSpec

NAMING_SCHEMES = (("fc", "layers.0"), ("fusion_fc", "transformer"))  # of what joins a pair, and of the layer
TENSOR_NAMES = {
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


def detect_eagle1(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """EAGLE-1 and EAGLE-2: a layer without a norm in front, and the target's embeddings and output."""
    join = _pair_projection_name(checkpoint)
    if join is None:
        return None
    config, tensors = checkpoint.text_config, checkpoint.with_canonical_names(TENSOR_NAMES)
    width = tensors.shape("join.weight")[0]
    block, warnings = dimensions_from_tensors(tensors, config, width)
    require_tensors(tensors, layer_tensor_names(block.layers))
    has_bias = "has" if "join.bias" in tensors else "has no"
    rope, vocabulary = Rope.from_config(config), int(config.get("vocab_size") or 0)
    return HeadSpec(
        kind=EAGLE,
        format="speculators EAGLE" if checkpoint.speculators_type else "SafeAILab EAGLE-1 or EAGLE-2",
        tensors=tensors,
        evidence=(
            f"{checkpoint.describe_shape(f'{join}.weight')}: it joins an embedding and a feature, and {has_bias} bias",
            f"{block.heads} heads over {block.kv_heads} keys; features are read after the final norm",
            "embeddings and output matrix are the target's",
        ),
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        dimensions=block,
        rope=rope,
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=width,
        target_vocab_size=vocabulary,
        draft_vocab_size=vocabulary,
        context_window=int(config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH),
    )


def _pair_projection_name(checkpoint: HeadCheckpoint) -> str | None:
    """The name of the map that joins a pair, where one does."""
    for join, layer in NAMING_SCHEMES:
        if f"{join}.weight" in checkpoint.tensors and f"{layer}.self_attn.q_proj.weight" in checkpoint.tensors:
            width, pair = checkpoint.matrix_shape(f"{join}.weight")
            return join if pair == 2 * width and f"{layer}.hidden_norm.weight" not in checkpoint.tensors else None
    return None
