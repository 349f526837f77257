"""EAGLE-1 (arXiv 2401.15077), EAGLE-2 and HASS, with the same weights: one layer over a projection of a pair.

The format and its drafter, which is that of EAGLE-3. As SafeAILab saves it, with the norms that some trainers add, and
with the names of vLLM's speculators.
"""

from __future__ import annotations

from functools import partial

from specchat.drafters.eagle import eagle_drafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.head_checkpoint import (
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.drafters.heads.spec import DEFAULT_TRAINED_LENGTH, HeadSpec
from specchat.engine.model import FINAL_NORM
from specchat.forward.llama.rope import Rope
from specchat_heads.dflash_format import is_block_head

EAGLE = "eagle"
NAMING_SCHEMES = (("fc", "layers.0"), ("fusion_fc", "transformer"))  # of the pair projection and the layer
TENSOR_NAMES = {
    "layers.": "layers.",
    "fc.": "join.",
    "embed_layernorm.": "embedding_norm.",  # three norms that some trainers add; the second is the layer's own
    "hidden_layernorm.": "layers.0.input_layernorm.",
    "lm_head_layernorm.": "norm.",
    "fusion_fc.": "join.",  # the names of speculators
    "transformer.": "layers.0.",
    "embedding_layernorm.": "embedding_norm.",
    "pre_lm_head_layernorm.": "norm.",
}


def detect_eagle1(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """EAGLE-1 and EAGLE-2: a layer without its first norm, with the target's embeddings and LM head."""
    join = _pair_projection_name(checkpoint)
    if join is None or is_block_head(checkpoint):
        return None
    config, tensors = checkpoint.text_config, checkpoint.with_canonical_names(TENSOR_NAMES)
    hidden_size = tensors.shape("join.weight")[0]
    dimensions, warnings = dimensions_from_tensors(tensors, config, hidden_size)
    require_tensors(tensors, layer_tensor_names(dimensions.layers))
    bias = "a bias" if "join.bias" in tensors else "no bias"
    rope, vocab_size = Rope.from_config(config), int(config.get("vocab_size") or 0)
    return HeadSpec(
        kind=EAGLE,
        network=EagleHead,
        format="speculators EAGLE" if checkpoint.speculators_type else "SafeAILab EAGLE-1 or EAGLE-2",
        tensors=tensors,
        evidence=(
            f"{checkpoint.describe_shape(f'{join}.weight')} projects an embedding and a hidden state, with {bias}",
            f"{dimensions.heads} heads, {dimensions.kv_heads} KV heads; hidden states after the final norm",
            "embeddings and LM head are the target's",
        ),
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        dimensions=dimensions,
        rope=rope,
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        context_window=int(config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH),
    )


def _pair_projection_name(checkpoint: HeadCheckpoint) -> str | None:
    for join, layer in NAMING_SCHEMES:
        if f"{join}.weight" in checkpoint.tensors and f"{layer}.self_attn.q_proj.weight" in checkpoint.tensors:
            hidden_size, pair = checkpoint.matrix_shape(f"{join}.weight")
            has_hidden_norm = f"{layer}.hidden_norm.weight" in checkpoint.tensors
            return join if pair == 2 * hidden_size and not has_hidden_norm else None
    return None


build = partial(eagle_drafter.build, kind=EAGLE)
