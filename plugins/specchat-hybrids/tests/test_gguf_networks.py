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
    assert {*tomllib.loads(NETWORKS_FILE.read_text()), "gemma4"} == set(NETWORKS)


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
    "a scaled RoPE": ("deepseek2", {"rope.scaling.type": "yarn"}, r"with rope\.scaling\.type = yarn is not supported"),
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


def test_the_router_of_deepseek_v2_is_refused_by_its_name(tmp_path):
    path = write_network(tmp_path / "model.gguf", "deepseek2", network("deepseek2"))
    path.write_bytes(path.read_bytes().replace(b"blk.1.exp_probs_b.bias", b"blk.1.exp_probs_x.bias"))

    with pytest.raises(
        ModelError, match=r"DeepSeek-V2 \(deepseek2\) cannot be read from GGUF; use the \*\.safetensors"
    ):
        prepared_gguf(path)


def test_a_group_of_tensors_that_is_there_in_part_is_refused(tmp_path):
    path = write_network(tmp_path / "model.gguf", "glm4", network("glm4"))
    name = b"blk.1.attn_q.bias"
    assert name.decode() in read_gguf(path).tensors
    path.write_bytes(path.read_bytes().replace(name, b"blk.1.attn_x.bias"))

    with pytest.raises(ModelError, match=r"the tensor blk\.1\.attn_q\.bias is missing"):
        prepared_gguf(path)
