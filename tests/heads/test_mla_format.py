"""Attention that asks latents answers what transformers' own answers, which expands them to keys and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
    apply_rotary_pos_emb_interleave,
    yarn_apply_mscale,
)

from specchat.forward.rope import Rope, cos_sin
from specchat.heads.head_attention import RopeAngles
from specchat.heads.mla import MlaAttention
from specchat.heads.spec import MlaDimensions
from specchat.models.tensor_files import TensorFiles, WeightLoader

CPU, COUNT, WIDTH = torch.device("cpu"), 7, 24
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
ROPES = {
    "plain": {"rope_type": "default", "rope_theta": 50000.0},
    "as DeepSeek-V3": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "of two sizes": YARN | {"mscale": 0.7, "mscale_all_dim": 1.4},
    "of one": YARN,
}
SIZES = {
    "as it is published": MlaDimensions(
        heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5, q_lora_rank=10
    ),
    "without a narrow query": MlaDimensions(
        heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5, q_lora_rank=None
    ),
    "in halves": MlaDimensions(
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


def theirs(sizes: MlaDimensions, rope: dict[str, Any]) -> tuple[DeepseekV3Attention, DeepseekV3RotaryEmbedding]:
    """transformers' attention with random weights, and its angles."""
    config = DeepseekV3Config(
        hidden_size=WIDTH, num_attention_heads=sizes.heads, num_key_value_heads=sizes.heads, kv_lora_rank=sizes.kv_lora_rank,
        q_lora_rank=sizes.q_lora_rank, qk_nope_head_dim=sizes.qk_nope_head_dim, qk_rope_head_dim=sizes.qk_rope_head_dim,
        v_head_dim=sizes.v_head_dim, rope_interleave=sizes.is_rope_interleaved, rope_parameters=rope, attention_bias=True,
        max_position_embeddings=2560,
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    network = DeepseekV3Attention(config, layer_idx=0).eval()
    for name, weight in network.named_parameters():
        weight.data = 1 + 0.3 * torch.randn_like(weight) if "norm" in name else 0.5 * torch.randn_like(weight)
    return network, DeepseekV3RotaryEmbedding(config)


def ours(sizes: MlaDimensions, rope: Rope, weights: dict[str, Tensor], folder: Path) -> MlaAttention:
    save_file({f"at.{name}": weight for name, weight in weights.items()}, folder / "x.safetensors")
    files = TensorFiles.from_files(folder, [folder / "x.safetensors"])
    return MlaAttention(sizes, WeightLoader(files, torch.float32, CPU), "at", rope.softmax_mscale)


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_its_answers_are_those_of_transformers(sizes, rope, tmp_path):
    latent, said = SIZES[sizes], Rope.from_config({"rope_parameters": ROPES[rope]})
    network, angles = theirs(latent, ROPES[rope])
    attention = ours(latent, said, network.state_dict(), tmp_path)
    rows, positions = torch.randn(COUNT, WIDTH), torch.arange(COUNT) * 9
    unseen = torch.full((COUNT, COUNT), float("-inf")).triu(1)

    with torch.no_grad():
        wanted = network(rows[None], angles(rows, positions[None]), unseen[None, None])[0][0]
    cosine, sine = cos_sin(positions, said.inv_freq(latent.qk_rope_head_dim), said.attention_factor)
    read = attention.project_qkv(rows, RopeAngles(cosine[:, None], sine[:, None]))
    found = attention.attend(read, *read.cache_rows, unseen[None, None])

    assert torch.allclose(found, wanted, atol=2e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("rope", ROPES)
def test_scores_are_as_sharp_as_in_transformers(rope):
    assert Rope.from_config({"rope_parameters": ROPES[rope]}).softmax_mscale == pytest.approx(
        yarn_apply_mscale(ROPES[rope], 1.0)
    )


def test_neighbours_that_turn_together_are_laid_apart_and_turned_as_halves():
    queries, keys, positions = torch.randn(1, 3, 5, 8), torch.randn(1, 1, 5, 8), torch.arange(5)
    cosine, sine = cos_sin(positions, Rope().inv_freq(8))
    whole = torch.cat((-sine[:, :4], sine[:, 4:]), dim=-1)  # theirs is positive in both halves
    wanted = apply_rotary_pos_emb_interleave(queries, keys, cosine[None], whole[None])
    apart, turn = torch.arange(8).view(-1, 2).T.flatten(), RopeAngles(cosine[:, None], sine[:, None])

    for states, theirs in zip((queries, keys), wanted, strict=True):
        assert torch.allclose(turn(states[0].transpose(0, 1)[..., apart]), theirs[0].transpose(0, 1), atol=1e-6)
