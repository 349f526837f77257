"""Rotary embeddings have the frequencies of transformers, for every supported type."""

import pytest
import torch

from specchat.forward.llama.rope import ROPE_TYPES, Rope, cos_sin
from tests.each_row import each_row

ORIGINAL = {"factor": 8.0, "original_max_position_embeddings": 64}
SCALINGS = {
    "linear": {"factor": 4.0},
    "llama3": ORIGINAL | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": ORIGINAL,
    "yarn, DeepSeek's": ORIGINAL | {"mscale": 0.7, "mscale_all_dim": 1.4, "beta_fast": 16, "beta_slow": 2},
    "proportional": {"partial_rotary_factor": 0.25, "factor": 2.0},
    "yarn, gpt-oss's": ORIGINAL | {"truncate": False, "attention_factor": 1.2},
}


def rope_type_of(name):
    return name.split(",")[0]


@each_row("name", SCALINGS)
def test_frequencies_are_those_of_transformers(name):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"rope_type": rope_type_of(name), "rope_theta": 50000.0, **SCALINGS[name]}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=2, head_dim=32, max_position_embeddings=512, rope_parameters=scaling
    )

    expected, attention_factor = ROPE_INIT_FUNCTIONS[rope_type_of(name)](config, "cpu")
    ours = Rope.from_config({"rope_parameters": scaling})

    assert torch.allclose(ours.inv_freq(32), expected, rtol=1e-5)
    assert ours.attention_factor == pytest.approx(attention_factor)


def test_every_type_is_compared():
    assert {rope_type_of(name) for name in SCALINGS} | {"default"} == set(ROPE_TYPES)


@each_row(
    "config",
    [
        {"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 7.0, "rope_type": "linear", "factor": 2.0}},
    ],
)
def test_old_and_new_config_keys_are_equivalent(config):
    rope = Rope.from_config(config)

    assert (rope.theta, rope.rope_type, rope.scaling["factor"]) == (7.0, "linear", 2.0)


def test_mrope_is_the_default_type_for_text():
    assert Rope.from_config({"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}).rope_type == "default"


def test_a_part_of_a_head_can_be_rotated():
    rope = Rope.from_config({"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}})

    cos, sin = cos_sin(torch.tensor([0, 3]), rope.inv_freq(16))

    assert cos.shape == sin.shape == (2, 4)
    assert cos[0].tolist() == [1.0] * 4
    assert sin[1, 0] == -sin[1, 2]
