"""The sizes of attention over latents (DeepSeek's MLA), from the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specchat.errors import ModelError
from specchat.heads.formats.head_checkpoint import config_mismatches, require_tensors
from specchat.heads.spec import HeadDimensions, MlaDimensions
from specchat.models.tensor_files import TensorFiles

ATTENTION_PREFIX = "layers.0.self_attn"
INTERLEAVED_FAMILIES = (
    "deepseek_v2",
    "deepseek_v3",
    "glm4_moe_lite",
    "kimi_k2",
)  # so do their weights; few configs say it


def is_mla(tensors: TensorFiles) -> bool:
    """Whether the first layer looks back at latents."""
    return any(name.startswith(f"{ATTENTION_PREFIX}.kv_a_proj") for name in tensors.locations)


def mla_projections(tensors: TensorFiles) -> list[str]:
    """The tensors that such attention must have."""
    is_narrow = any(name.startswith(f"{ATTENTION_PREFIX}.q_a_") for name in tensors.locations)
    asking = ["q_a_proj", "q_a_layernorm", "q_b_proj"] if is_narrow else ["q_proj"]
    return [*asking, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def mla_dimensions_from_tensors(
    tensors: TensorFiles, config: Mapping[str, Any], hidden_size: int
) -> tuple[HeadDimensions, list[str]]:
    """The numbers of the layer; what the config says otherwise becomes a warning."""
    require_tensors(tensors, [f"{ATTENTION_PREFIX}.{part}.weight" for part in mla_projections(tensors)])
    latent = _mla_dimensions(tensors, is_rope_interleaved=config.get("rope_interleave") is not False)
    said = {
        "num_attention_heads": latent.heads, "q_lora_rank": latent.q_lora_rank, "kv_lora_rank": latent.kv_lora_rank,
        "qk_nope_head_dim": latent.qk_nope_head_dim, "qk_rope_head_dim": latent.qk_rope_head_dim, "v_head_dim": latent.v_head_dim,
        "hidden_size": hidden_size,
    }  # fmt: skip
    size, epsilon = latent.qk_nope_head_dim + latent.qk_rope_head_dim, float(config.get("rms_norm_eps", 1e-6))
    return HeadDimensions(hidden_size, latent.heads, latent.heads, size, 1, epsilon, mla=latent), config_mismatches(
        config, said
    )


def is_rope_layout_known(config: Mapping[str, Any]) -> bool:
    """Whether it is known which numbers of a head turn together: by the config itself, or by its family."""
    return isinstance(config.get("rope_interleave"), bool) or config.get("model_type") in INTERLEAVED_FAMILIES


def _mla_dimensions(tensors: TensorFiles, is_rope_interleaved: bool) -> MlaDimensions:
    shapes = {part: tensors.shape(f"{ATTENTION_PREFIX}.{part}.weight") for part in mla_projections(tensors)}
    narrow = shapes["q_a_proj"][0] if "q_a_proj" in shapes else None
    queries, seen = shapes["q_b_proj" if narrow else "q_proj"][0], shapes["o_proj"][1]
    both, (rank,) = shapes["kv_b_proj"][0], shapes["kv_a_layernorm"]
    turned = shapes["kv_a_proj_with_mqa"][0] - rank
    # queries = heads * (still + turned), both = heads * (still + value), seen = heads * value
    heads, rest = divmod(queries + seen - both, turned) if turned > 0 else (0, 1)
    if rest or heads <= 0 or queries % heads or seen % heads or queries < heads * turned or turned % 2:
        rows = f"q {queries}, kv_a {rank + turned}, kv_b {both} rows, o {seen} columns"
        raise ModelError(f"{tensors.source}: no size of a head fits its projections ({rows}, and latents of {rank})")
    return MlaDimensions(heads, rank, queries // heads - turned, turned, seen // heads, narrow, is_rope_interleaved)
