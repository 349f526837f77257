"""The sizes of attention over latents (DeepSeek's MLA), from the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specchat.errors import ModelError
from specchat.heads.formats.checkpoint_files import disagreements, missing
from specchat.heads.spec import Block, Latent
from specchat.models.tensor_files import TensorFiles

AT = "layers.0.self_attn"
INTERLEAVES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2")  # so do their weights; few configs say it


def is_latent(tensors: TensorFiles) -> bool:
    """Whether the first layer looks back at latents."""
    return any(name.startswith(f"{AT}.kv_a_proj") for name in tensors.places)


def latent_parts(tensors: TensorFiles) -> list[str]:
    """The tensors that such attention must have."""
    is_narrow = any(name.startswith(f"{AT}.q_a_") for name in tensors.places)
    asking = ["q_a_proj", "q_a_layernorm", "q_b_proj"] if is_narrow else ["q_proj"]
    return [*asking, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def latent_block_of(tensors: TensorFiles, config: Mapping[str, Any], width: int) -> tuple[Block, list[str]]:
    """The numbers of the layer; what the config says otherwise becomes a warning."""
    missing(tensors, [f"{AT}.{part}.weight" for part in latent_parts(tensors)])
    latent = _sizes(tensors, interleaved=config.get("rope_interleave") is not False)
    said = {
        "num_attention_heads": latent.heads, "q_lora_rank": latent.query_rank, "kv_lora_rank": latent.rank,
        "qk_nope_head_dim": latent.still, "qk_rope_head_dim": latent.turned, "v_head_dim": latent.value,
        "hidden_size": width,
    }  # fmt: skip
    size, epsilon = latent.still + latent.turned, float(config.get("rms_norm_eps", 1e-6))
    return Block(width, latent.heads, latent.heads, size, 1, epsilon, latent=latent), disagreements(config, said)


def says_how_it_turns(config: Mapping[str, Any]) -> bool:
    """Whether it is known which numbers of a head turn together: by the config itself, or by its family."""
    return isinstance(config.get("rope_interleave"), bool) or config.get("model_type") in INTERLEAVES


def _sizes(tensors: TensorFiles, interleaved: bool) -> Latent:
    shapes = {part: tensors.shape(f"{AT}.{part}.weight") for part in latent_parts(tensors)}
    narrow = shapes["q_a_proj"][0] if "q_a_proj" in shapes else None
    queries, seen = shapes["q_b_proj" if narrow else "q_proj"][0], shapes["o_proj"][1]
    both, (rank,) = shapes["kv_b_proj"][0], shapes["kv_a_layernorm"]
    turned = shapes["kv_a_proj_with_mqa"][0] - rank
    # queries = heads * (still + turned), both = heads * (still + value), seen = heads * value
    heads, rest = divmod(queries + seen - both, turned) if turned > 0 else (0, 1)
    if rest or heads <= 0 or queries % heads or seen % heads or queries < heads * turned or turned % 2:
        rows = f"q {queries}, kv_a {rank + turned}, kv_b {both} rows, o {seen} columns"
        raise ModelError(f"{tensors.source}: no size of a head fits its projections ({rows}, and latents of {rank})")
    return Latent(heads, rank, queries // heads - turned, turned, seen // heads, narrow, interleaved)
