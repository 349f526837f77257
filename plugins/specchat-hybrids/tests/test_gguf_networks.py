"""Files of architectures that transformers computes: the weights and the config are those of the published network."""

import tomllib

import pytest
import torch
from test_gguf_conversion import loaded

from specchat.errors import ModelError
from specchat.forward.transformers.transformers_model import TransformersModel
from specchat.weights.gguf.gguf_file import read_gguf
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids.gguf_conversion import safetensors_folder
from specchat_hybrids.gguf_networks import NETWORKS_FILE
from tests.each_row import each_row
from tests.gguf_networks import NETWORKS, network, write_network


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def test_every_network_has_a_file_here():
    assert {*tomllib.loads(NETWORKS_FILE.read_text()), "gemma4"} == {name.partition(" ")[0] for name in NETWORKS}


@each_row("family", NETWORKS, shares=8)
def test_the_converted_network_is_the_published_one(tmp_path, family):
    model = network(family)
    folder = safetensors_folder(prepared_gguf(write_network(tmp_path / "model.gguf", family, model)))

    converted = loaded(folder)

    expected = model.state_dict()
    assert converted.state_dict().keys() == expected.keys()
    for name, tensor in converted.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    with torch.inference_mode():
        logits = [each(torch.arange(40)[None]).logits for each in (converted, model)]
    assert torch.equal(*logits)


@pytest.mark.full
@pytest.mark.parametrize("family", ["lfm2", "granitehybrid", "glm4"])
def test_such_a_file_is_loaded_as_any_model(tmp_path, family):
    path = write_network(tmp_path / "model.gguf", family, network(family))

    model = load_model(prepared_gguf(path), LoadOptions(dtype="float32", device="cpu", quant_format="gguf"))

    assert isinstance(model, TransformersModel)


CONTRADICTIONS = {
    "a softmax instead of a sigmoid": (
        "deepseek2",
        {"expert_gating_func": 1},
        "with expert_gating_func = 1 is not supp",
    ),
    "YaRN without its length": (
        "deepseek2",
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
        r"rope\.scaling\.original_context_length is missing",
    ),
    "YaRN that sharpens twice": (
        "deepseek2 with YaRN",
        {"rope.scaling.attn_factor": 2.0},
        r"with rope\.scaling\.attn_factor = 2\.0 is not supported",
    ),
    "a sigmoid instead of a softmax": (
        "deepseek2 of V2",
        {"expert_gating_func": 2},
        "with expert_gating_func = 2 is not supp",
    ),
    "weights of experts that are made to sum to 1": (
        "deepseek2 of V2",
        {"expert_weights_norm": True},
        "with expert_weights_norm = True is not supp",
    ),
    "other experts": ("granitemoe", {"expert_count": 8}, "has the shape .*, and .* 8 experts"),
    "experts of a family with one tensor for each": (
        "lfm2moe",
        {"expert_count": 8},
        r"has the shape .*, and .* 8 experts",
    ),
    "fewer layers in a list": ("lfm2", {"attention.head_count_kv": [2]}, r"head_count_kv has 1 of 2 layers"),
    "no width of a convolution": ("lfm2", {"shortconv.l_cache": None}, r"lfm2\.shortconv\.l_cache is missing"),
    "too few layers": ("glm4", {"block_count": 1}, r"glm4 with the tensor blk\.1\..* is not supported"),
    "another scale of logits": ("glm4", {"logit_scale": 2.0}, r"glm4 with logit_scale = 2\.0 is not supported"),
}


@each_row("contradiction", CONTRADICTIONS, shares=4)
def test_metadata_that_does_not_fit_is_one_clear_line(tmp_path, contradiction):
    family, metadata, message = CONTRADICTIONS[contradiction]
    path = write_network(tmp_path / "model.gguf", family, network(family), metadata)

    with pytest.raises(ModelError, match=message) as caught:
        prepared_gguf(path)

    assert "\n" not in str(caught.value)


OTHER_SHAPES = {
    "a narrower MLP": (
        "glm4",
        {"feed_forward_length": 64},
        r"gate_up_proj\.weight has the shape \[192, 64\], and .*\[128",
    ),
    "experts that are stacked": (
        "granitemoe",
        {"feed_forward_length": 64},
        r"experts\.down_proj has the shape \[6, 64, 96\], and .*\[6, 64, 64\]",
    ),
    "a longer latent": ("deepseek2", {"attention.kv_lora_rank": 40}, r"has the shape \[40, 64\], and .*\[48, 64\]"),
    "narrower experts": ("lfm2moe", {"expert_feed_forward_length": 16}, "the file says experts of 16"),
}


@each_row("contradiction", OTHER_SHAPES, shares=4)
def test_tensors_of_another_shape_than_the_metadata_says_are_refused_before_they_are_converted(tmp_path, contradiction):
    family, metadata, message = OTHER_SHAPES[contradiction]
    path = write_network(tmp_path / "model.gguf", family, network(family), metadata)

    with pytest.raises(ModelError, match=message) as caught:
        load_model(prepared_gguf(path), LoadOptions(device="cpu"))

    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("gguf/*/*.partial"))
    assert not list((tmp_path / "cache").glob("gguf/*/bf16"))


def test_a_group_of_tensors_that_is_there_in_part_is_refused(tmp_path):
    path = write_network(tmp_path / "model.gguf", "glm4", network("glm4"))
    name = b"blk.1.attn_q.bias"
    assert name.decode() in read_gguf(path).tensors
    path.write_bytes(path.read_bytes().replace(name, b"blk.1.attn_x.bias"))

    with pytest.raises(ModelError, match=r"the tensor blk\.1\.attn_q\.bias is missing"):
        prepared_gguf(path)
