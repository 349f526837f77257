"""A GGUF file becomes a folder that computes as the network that was written."""

import pytest
import torch
import transformers
from safetensors.torch import load_file

from specchat.models.gguf_conversion import converted_gguf, find_converted
from tests.gguf_models import FAMILIES, network, write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def loaded(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model):
    with torch.inference_mode():
        return model(torch.arange(40)[None]).logits


@pytest.mark.parametrize("storage", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_converted_weights_are_those_of_the_network(tmp_path, family, storage):
    model = network(family)

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", family, storage=storage))

    converted = load_file(folder / "model.safetensors")
    expected = model.state_dict()
    assert {name for name in expected if name != "lm_head.weight"} == set(converted)
    for name, tensor in converted.items():
        assert torch.equal(
            tensor, expected[name].half().bfloat16() if storage == "F16" else expected[name].bfloat16()
        ), name


@pytest.mark.parametrize(
    ("family", "tied"), [*((family, True) for family in FAMILIES), ("llama", False), ("qwen3", False), ("phi3", False)]
)
def test_the_converted_folder_computes_the_same_logits(tmp_path, family, tied):
    model = network(family, tied)

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", family, model=model))

    assert torch.equal(logits(loaded(folder)), logits(model))


def test_a_second_call_finds_the_folder_and_a_changed_file_makes_another(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")

    first = converted_gguf(path)

    assert find_converted(path) == converted_gguf(path) == first
    write_gguf(path, "qwen2")
    assert find_converted(path) is None
    assert converted_gguf(path) != first
    assert not first.exists()


def test_progress_is_reported_until_all_bytes_are_written(tmp_path):
    reports = []

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf"), lambda *report: reports.append(report))

    what, done, total = reports[-1]
    assert what == "converting model.gguf"
    assert done == total == sum(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())
