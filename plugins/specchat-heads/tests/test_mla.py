"""Absorbed MLA has the outputs of transformers' implementation, which expands latents to keys and values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.forward.attention import AttentionMask, apply_rope
from specchat.forward.batch import ForwardBatch
from specchat.forward.fused_ops import AttentionDimensions, TorchOps
from specchat.forward.llama.decoder_layer import LayerContext, RopeAngles
from specchat.forward.llama.rope import Rope, cos_sin
from specchat.weights.tensor_files import TensorFiles, WeightLoader
from specchat_heads.mla import MlaAttention, MlaDimensions

if TYPE_CHECKING:
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

CPU, COUNT, HIDDEN_SIZE = torch.device("cpu"), 7, 24
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
ROPES = {
    "plain": {"rope_type": "default", "rope_theta": 50000.0},
    "as DeepSeek-V3": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "two mscales": YARN | {"mscale": 0.7, "mscale_all_dim": 1.4},
    "no mscale": YARN,
}
SIZES = {
    "as published": MlaDimensions(
        heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5, q_lora_rank=10
    ),
    "without query LoRA": MlaDimensions(
        heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5, q_lora_rank=None
    ),
    "half-split RoPE": MlaDimensions(
        heads=2,
        kv_lora_rank=9,
        qk_nope_head_dim=4,
        qk_rope_head_dim=4,
        v_head_dim=16,
        q_lora_rank=10,
        is_rope_interleaved=False,
    ),
    "with a latent smaller than a head": MlaDimensions(
        heads=4, kv_lora_rank=3, qk_nope_head_dim=8, qk_rope_head_dim=2, v_head_dim=7, q_lora_rank=5
    ),
}


def reference(sizes: MlaDimensions, rope: dict[str, Any]) -> tuple[DeepseekV3Attention, DeepseekV3RotaryEmbedding]:
    """transformers' attention with random weights, and its rotary embedding."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

    config = DeepseekV3Config(
        hidden_size=HIDDEN_SIZE, num_attention_heads=sizes.heads, num_key_value_heads=sizes.heads,
        kv_lora_rank=sizes.kv_lora_rank, q_lora_rank=sizes.q_lora_rank, qk_nope_head_dim=sizes.qk_nope_head_dim,
        qk_rope_head_dim=sizes.qk_rope_head_dim, v_head_dim=sizes.v_head_dim,
        rope_interleave=sizes.is_rope_interleaved, rope_parameters=rope, attention_bias=True,
        max_position_embeddings=2560,
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    network = DeepseekV3Attention(config, layer_idx=0).eval()
    for name, weight in network.named_parameters():
        weight.data = 1 + 0.3 * torch.randn_like(weight) if "norm" in name else 0.5 * torch.randn_like(weight)
    return network, DeepseekV3RotaryEmbedding(config)


def load(sizes: MlaDimensions, rope: Rope, weights: dict[str, Tensor], folder: Path) -> MlaAttention:
    save_file({f"at.{name}": weight for name, weight in weights.items()}, folder / "x.safetensors")
    files = TensorFiles.from_files(folder, [folder / "x.safetensors"])
    return MlaAttention(sizes, WeightLoader(files, torch.float32, CPU), "at", rope.softmax_mscale)


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_outputs_are_those_of_transformers(sizes, rope, tmp_path):
    mla, config = SIZES[sizes], Rope.from_config({"rope_parameters": ROPES[rope]})
    network, rotary_embedding = reference(mla, ROPES[rope])
    attention = load(mla, config, network.state_dict(), tmp_path)
    rows, positions = torch.randn(COUNT, HIDDEN_SIZE), torch.arange(COUNT) * 9
    mask = torch.full((COUNT, COUNT), float("-inf")).triu(1)[None, None]

    with torch.no_grad():
        expected = network(rows[None], rotary_embedding(rows, positions[None]), mask)[0][0]
    cos, sin = cos_sin(positions, config.inv_freq(mla.qk_rope_head_dim), config.attention_factor)
    batch = ForwardBatch(
        positions,
        {None: AttentionMask(mask[0, 0] == 0, 1, rows)},
        lambda _layer, keys, values: (keys, values),
    )
    ops = TorchOps(AttentionDimensions(mla.heads, mla.heads, mla.v_head_dim, 1e-6))
    output = attention(rows, LayerContext(ops, batch, RopeAngles(cos[:, None], sin[:, None])), 0, None)

    assert torch.allclose(output, expected, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("rope", ROPES)
def test_the_softmax_scale_is_that_of_transformers(rope):
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale

    assert Rope.from_config({"rope_parameters": ROPES[rope]}).softmax_mscale == pytest.approx(
        yarn_apply_mscale(ROPES[rope], 1.0)
    )


def test_interleaved_pairs_in_half_split_order_are_rotated_as_interleaved():
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import apply_rotary_pos_emb_interleave

    queries, keys, positions = torch.randn(1, 3, 5, 8), torch.randn(1, 1, 5, 8), torch.arange(5)
    cos, sin = cos_sin(positions, Rope().inv_freq(8))
    positive_sin = torch.cat((-sin[:, :4], sin[:, 4:]), dim=-1)  # transformers' sine is positive in both halves
    expected = apply_rotary_pos_emb_interleave(queries, keys, cos[None], positive_sin[None])
    order = torch.arange(8).view(-1, 2).T.flatten()

    for states, theirs in zip((queries, keys), expected, strict=True):
        ours = apply_rope(states[0].transpose(0, 1)[..., order], cos[:, None], sin[:, None])
        assert torch.allclose(ours, theirs[0].transpose(0, 1), atol=1e-6)
