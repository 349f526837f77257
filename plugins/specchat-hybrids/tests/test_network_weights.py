"""Networks of transformers with quantized weights: matrices and experts, and not routers, norms and embeddings."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids.network_weights import NetworkQuantization
from specchat_hybrids.quant_weight import QuantExperts, quant_weights
from tools.model_zoo import weights_fault
from tools.zoo_networks import tiny_network

TOKENS = torch.arange(3, 19)[None]
SIZES = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 32}
HYBRID = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
EVERY_EXPERT = {"num_experts_per_tok": 4}  # so that no rounding chooses another one
MOST_ERROR = {"int8": 0.1, "nf4": 0.4}  # of the logits of a small random network


@pytest.fixture
def saved(tmp_path):
    def save(family, **changes):
        network = tiny_network(family, initializer_range=0.05, **changes)
        network.save_pretrained(tmp_path)
        return tmp_path

    return save


def load(folder, quant_format):
    return load_model(folder, LoadOptions(dtype="float32", device="cpu", quant_format=quant_format))


def names(model):
    return {re.sub(r"\d+", "*", weight.weight_name) for weight in quant_weights(model.network)}


@torch.inference_mode()
def logits(model):
    return model.network(input_ids=TOKENS).logits[0]


def error(model, expected):
    return float((logits(model) - expected).norm() / expected.norm())


@pytest.mark.dear
@pytest.mark.parametrize(("family", "quant_format"), [("flex_olmo", "nf4"), ("llama4_text", "int8")])
def test_the_logits_of_a_quantized_network_are_near_those_of_floats(saved, family, quant_format):
    folder = saved(family, num_hidden_layers=2, **SIZES, **EVERY_EXPERT)
    whole, small = load(folder, "float"), load(folder, quant_format)

    assert error(small, logits(whole)) < MOST_ERROR[quant_format]
    assert any(isinstance(weight, QuantExperts) for weight in quant_weights(small.network))
    assert small.bytes < 0.6 * whole.bytes


def test_routers_norms_convolutions_and_small_gates_stay_float(saved):
    from specchat.weights.transformers_files import load_with_transformers

    folder = saved("qwen3_5_moe_text", **SIZES, **HYBRID)
    model = load_with_transformers(folder, torch.device("cpu"), torch.float32, None, BatchLimits(), "int8")

    assert not [
        name for name in names(model) if re.search(r"mlp\.gate\.|norm|conv|in_proj_[ab]|shared_expert_gate", name)
    ]
    assert {
        "lm_head.weight",
        "model.layers.*.linear_attn.out_proj.weight",
        "model.layers.*.mlp.experts.down_proj",
    } < names(model)


def test_a_tied_head_is_quantized_and_the_embedding_is_not(saved):
    model = load(saved("gpt2", hidden_size=64, num_hidden_layers=1, tie_word_embeddings=True), "int8")

    assert names(model) > {"lm_head.weight", "transformer.h.*.attn.c_attn.weight"}
    assert model.network.get_input_embeddings().weight.dtype == torch.float32
    hidden_states = torch.randn(2, 64)
    expected = (hidden_states @ model.network.get_input_embeddings().weight.T).detach()
    assert torch.allclose(model.compute_logits(hidden_states), expected, atol=0.05 * float(expected.abs().max()))


def test_a_network_that_multiplies_with_the_other_side_is_loaded_again_and_remembered(saved):
    folder = saved("llama4_text", num_hidden_layers=1)

    model = load(folder, "int8")

    assert set(NetworkQuantization("int8", torch.device("cpu"), folder).known_uses.values()) == {"transposed"}
    experts = [weight for weight in quant_weights(model.network) if isinstance(weight, QuantExperts)]
    assert experts
    assert all(weight.is_transposed for weight in experts)


def test_drafts_do_not_change_the_answers_of_a_quantized_network(saved):
    assert weights_fault(saved("qwen3_5_text", **HYBRID), "int8") == ""


def test_the_rounding_of_activations_does_not_hide_a_wrong_pass(tmp_path):
    tiny_network("jamba").save_pretrained(tmp_path)  # loses its state between two parts of a prompt

    form = load(tmp_path, "int8").form

    assert form.name == "token-by-token"
    assert "a later part of a prompt differs" in form.reason


def test_each_expert_of_a_pass_is_read_once(saved, monkeypatch):
    model = load(saved("flex_olmo", num_hidden_layers=1), "int8")
    monkeypatch.setattr(type(model.network.model.layers[0].mlp.gate), "forward", everyone_chooses_1_and_2)
    [gate_up] = [weight for weight in quant_weights(model.network) if weight.weight_name.endswith("gate_up_proj")]
    calls = []
    for expert, each in enumerate(gate_up.matrices):
        each.linear = counting(each.linear, expert, calls)

    logits(model)

    assert calls == [1, 2]


def everyone_chooses_1_and_2(_router, hidden_states):
    rows = hidden_states.reshape(-1, hidden_states.shape[-1])
    chosen = torch.tensor([[2, 1]]).expand(len(rows), 2)
    return rows.new_zeros(len(rows), 4), rows.new_full((len(rows), 2), 0.5), chosen


def counting(linear, expert, calls):
    def multiply(rows):
        calls.append(expert)
        return linear(rows)

    return multiply


def test_a_weight_with_nan_is_refused_by_name(saved):
    path = saved("gpt_neox") / "model.safetensors"
    tensors = load_file(path)
    tensors["gpt_neox.layers.2.mlp.dense_h_to_4h.weight"][3, 5] = torch.nan
    save_file(tensors, path, metadata={"format": "pt"})

    with pytest.raises(ModelError, match=r"layers\.2\.mlp\.dense_h_to_4h\.weight contains NaN"):
        load(path.parent, "int8")
