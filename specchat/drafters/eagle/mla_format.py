"""The sizes of multi-head latent attention (DeepSeek's MLA), from the shapes of its tensors."""

from collections.abc import Mapping
from typing import Any

from specchat.drafters.heads.head_checkpoint import config_mismatches, require_tensors
from specchat.drafters.heads.spec import HeadDimensions, MlaDimensions
from specchat.errors import ModelError
from specchat.weights.tensor_files import TensorFiles

ATTENTION_PREFIX = "layers.0.self_attn"
INTERLEAVED_FAMILIES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2")  # few configs have the key


def is_mla(tensors: TensorFiles) -> bool:
    return any(name.startswith(f"{ATTENTION_PREFIX}.kv_a_proj") for name in tensors.locations)


def mla_projections(tensors: TensorFiles) -> list[str]:
    has_q_lora = any(name.startswith(f"{ATTENTION_PREFIX}.q_a_") for name in tensors.locations)
    queries = ["q_a_proj", "q_a_layernorm", "q_b_proj"] if has_q_lora else ["q_proj"]
    return [*queries, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def mla_dimensions_from_tensors(
    tensors: TensorFiles, config: Mapping[str, Any], hidden_size: int
) -> tuple[HeadDimensions, list[str]]:
    """The sizes of the layer, and a warning for every difference to the config."""
    require_tensors(tensors, [f"{ATTENTION_PREFIX}.{part}.weight" for part in mla_projections(tensors)])
    mla = _mla_dimensions(tensors, is_rope_interleaved=config.get("rope_interleave") is not False)
    measured = {
        "num_attention_heads": mla.heads, "q_lora_rank": mla.q_lora_rank, "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim, "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim, "hidden_size": hidden_size,
    }  # fmt: skip
    head_size, epsilon = mla.qk_nope_head_dim + mla.qk_rope_head_dim, float(config.get("rms_norm_eps", 1e-6))
    dimensions = HeadDimensions(hidden_size, mla.heads, mla.heads, head_size, 1, epsilon, mla=mla)
    return dimensions, config_mismatches(config, measured)


def is_rope_layout_known(config: Mapping[str, Any]) -> bool:
    """Whether the config or its family determines the layout of RoPE, interleaved or half-split."""
    return isinstance(config.get("rope_interleave"), bool) or config.get("model_type") in INTERLEAVED_FAMILIES


def _mla_dimensions(tensors: TensorFiles, is_rope_interleaved: bool) -> MlaDimensions:
    shapes = {part: tensors.shape(f"{ATTENTION_PREFIX}.{part}.weight") for part in mla_projections(tensors)}
    q_lora_rank = shapes["q_a_proj"][0] if "q_a_proj" in shapes else None
    query_rows, value_columns = shapes["q_b_proj" if q_lora_rank else "q_proj"][0], shapes["o_proj"][1]
    kv_rows, (rank,) = shapes["kv_b_proj"][0], shapes["kv_a_layernorm"]
    rope_size = shapes["kv_a_proj_with_mqa"][0] - rank
    # query_rows = heads * (nope + rope), kv_rows = heads * (nope + value), value_columns = heads * value
    heads, rest = divmod(query_rows + value_columns - kv_rows, rope_size) if rope_size > 0 else (0, 1)
    is_invalid = rest or heads <= 0 or query_rows % heads or value_columns % heads
    if is_invalid or query_rows < heads * rope_size or rope_size % 2:
        rows = f"q {query_rows}, kv_a {rank + rope_size}, kv_b {kv_rows} rows, o {value_columns} columns"
        raise ModelError(f"{tensors.source}: no head size fits the projections ({rows}, and latents of {rank})")
    nope_size = query_rows // heads - rope_size
    return MlaDimensions(heads, rank, nope_size, rope_size, value_columns // heads, q_lora_rank, is_rope_interleaved)
