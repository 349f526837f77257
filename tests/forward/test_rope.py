"""Rotary embeddings turn as fast as in transformers, of every kind that we say we know."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specchat.forward.rope import ROPE_TYPES, Rope, cos_sin

OLD = {"factor": 8.0, "original_max_position_embeddings": 64}
SCALINGS = {
    "linear": {"factor": 4.0},
    "llama3": OLD | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": OLD,
    "yarn, DeepSeek's": OLD | {"mscale": 0.7, "mscale_all_dim": 1.4, "beta_fast": 16, "beta_slow": 2},
    "yarn, gpt-oss's": OLD | {"truncate": False, "attention_factor": 1.2},
}


def kind_of(name):
    return name.split(",")[0]


@pytest.mark.parametrize("name", SCALINGS)
def test_speeds_are_those_of_transformers(name):
    said = {"rope_type": kind_of(name), "rope_theta": 50000.0, **SCALINGS[name]}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=2, head_dim=32, max_position_embeddings=512, rope_parameters=said
    )

    theirs, size = ROPE_INIT_FUNCTIONS[kind_of(name)](config, "cpu")
    ours = Rope.from_config({"rope_parameters": said})

    assert torch.allclose(ours.inv_freq(32), theirs, rtol=1e-5)
    assert ours.attention_factor == pytest.approx(size)


def test_every_kind_is_compared():
    assert {kind_of(name) for name in SCALINGS} | {"default"} == set(ROPE_TYPES)


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 7.0, "rope_type": "linear", "factor": 2.0}},
    ],
    ids=["of old", "of today"],
)
def test_configs_of_old_and_of_today_say_the_same(config):
    rope = Rope.from_config(config)

    assert (rope.theta, rope.rope_type, rope.scaling["factor"]) == (7.0, "linear", 2.0)


def test_of_text_three_positions_are_one():
    assert Rope.from_config({"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}).rope_type == "default"


def test_a_share_of_a_head_is_turned():
    rope = Rope.from_config({"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}})

    cosine, sine = cos_sin(torch.tensor([0, 3]), rope.inv_freq(16))

    assert cosine.shape == sine.shape == (2, 4)
    assert cosine[0].tolist() == [1.0] * 4
    assert sine[1, 0] == -sine[1, 2]
