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

from specchat.forward.rope import Rope, turns
from specchat.heads.head_attention import Turn
from specchat.heads.mla import LatentAttention
from specchat.heads.spec import Latent
from specchat.models.tensor_files import Loader, TensorFiles

CPU, COUNT, WIDTH = torch.device("cpu"), 7, 24
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
ROPES = {
    "plain": {"rope_type": "default", "rope_theta": 50000.0},
    "as DeepSeek-V3": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "of two sizes": YARN | {"mscale": 0.7, "mscale_all_dim": 1.4},
    "of one": YARN,
}
SIZES = {
    "as it is published": Latent(heads=3, rank=12, still=6, turned=8, value=5, query_rank=10),
    "without a narrow query": Latent(heads=3, rank=12, still=6, turned=8, value=5, query_rank=None),
    "in halves": Latent(heads=2, rank=9, still=4, turned=4, value=16, query_rank=10, interleaved=False),
    "with a latent smaller than a head": Latent(heads=4, rank=3, still=8, turned=2, value=7, query_rank=5),
}


def theirs(sizes: Latent, rope: dict[str, Any]) -> tuple[DeepseekV3Attention, DeepseekV3RotaryEmbedding]:
    """transformers' attention with random weights, and its angles."""
    config = DeepseekV3Config(
        hidden_size=WIDTH, num_attention_heads=sizes.heads, num_key_value_heads=sizes.heads, kv_lora_rank=sizes.rank,
        q_lora_rank=sizes.query_rank, qk_nope_head_dim=sizes.still, qk_rope_head_dim=sizes.turned,
        v_head_dim=sizes.value, rope_interleave=sizes.interleaved, rope_parameters=rope, attention_bias=True,
        max_position_embeddings=2560,
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    network = DeepseekV3Attention(config, layer_idx=0).eval()
    for name, weight in network.named_parameters():
        weight.data = 1 + 0.3 * torch.randn_like(weight) if "norm" in name else 0.5 * torch.randn_like(weight)
    return network, DeepseekV3RotaryEmbedding(config)


def ours(sizes: Latent, rope: Rope, weights: dict[str, Tensor], folder: Path) -> LatentAttention:
    save_file({f"at.{name}": weight for name, weight in weights.items()}, folder / "x.safetensors")
    files = TensorFiles.of(folder, [folder / "x.safetensors"])
    return LatentAttention(sizes, Loader(files, torch.float32, CPU), "at", rope.sharpness)


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_its_answers_are_those_of_transformers(sizes, rope, tmp_path):
    latent, said = SIZES[sizes], Rope.of({"rope_parameters": ROPES[rope]})
    network, angles = theirs(latent, ROPES[rope])
    attention = ours(latent, said, network.state_dict(), tmp_path)
    rows, positions = torch.randn(COUNT, WIDTH), torch.arange(COUNT) * 9
    unseen = torch.full((COUNT, COUNT), float("-inf")).triu(1)

    with torch.no_grad():
        wanted = network(rows[None], angles(rows, positions[None]), unseen[None, None])[0][0]
    cosine, sine = turns(positions, said.speeds(latent.turned), said.size)
    read = attention.read(rows, Turn(cosine[:, None], sine[:, None]))
    found = attention.answer(read, *read.offered, unseen[None, None])

    assert torch.allclose(found, wanted, atol=2e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("rope", ROPES)
def test_scores_are_as_sharp_as_in_transformers(rope):
    assert Rope.of({"rope_parameters": ROPES[rope]}).sharpness == pytest.approx(yarn_apply_mscale(ROPES[rope], 1.0))


def test_neighbours_that_turn_together_are_laid_apart_and_turned_as_halves():
    queries, keys, positions = torch.randn(1, 3, 5, 8), torch.randn(1, 1, 5, 8), torch.arange(5)
    cosine, sine = turns(positions, Rope().speeds(8))
    whole = torch.cat((-sine[:, :4], sine[:, 4:]), dim=-1)  # theirs is positive in both halves
    wanted = apply_rotary_pos_emb_interleave(queries, keys, cosine[None], whole[None])
    apart, turn = torch.arange(8).view(-1, 2).T.flatten(), Turn(cosine[:, None], sine[:, None])

    for states, theirs in zip((queries, keys), wanted, strict=True):
        assert torch.allclose(turn(states[0].transpose(0, 1)[..., apart]), theirs[0].transpose(0, 1), atol=1e-6)
