"""From a name to a model, and one clear line where there is none."""

import shutil

import pytest
import torch

from specchat.engine.dense import DenseModel
from specchat.engine.model import TransformersModel
from specchat.errors import ModelError
from specchat.models.load import Loading, find_model, load_model
from tests.tiny import saved, speaking


def test_a_dense_model_runs_in_our_own_passes():
    model = load_model(speaking(), Loading(dtype="float32"))

    assert isinstance(model, DenseModel)
    assert model.pool.layout.dtype == torch.float32


def test_another_architecture_runs_in_transformers():
    assert isinstance(load_model(saved("gemma3"), Loading(dtype="float32")), TransformersModel)


def test_a_window_is_never_longer_than_the_model_was_made_for():
    assert load_model(speaking(), Loading(window=100)).window == 100
    assert load_model(speaking(), Loading(window=10**6)).window == 32768


def test_weights_keep_their_size_in_memory():
    stored = sum(tensor.numel() for tensor in load_tensors(speaking()).values())

    assert load_model(speaking(), Loading(dtype="float32")).bytes == stored * 4
    assert load_model(speaking(), Loading(dtype="bfloat16")).bytes == stored * 2


def load_tensors(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_missing_folder_says_what_could_be_given():
    with pytest.raises(ModelError, match="no such folder"):
        find_model("/nowhere/at/all")


def test_a_folder_without_a_model_names_what_is_missing(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        find_model(str(tmp_path))


def test_a_file_is_no_model(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelError, match="not a folder"):
        find_model(str(tmp_path / "model.gguf"))


def test_a_hub_id_that_is_not_here_names_the_remedy(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set; fetch it once"):
        find_model("nobody/nothing-0.5B")


def test_a_broken_file_is_one_line(tmp_path):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes(b"not a tensor in sight")

    with pytest.raises(ModelError) as caught:
        load_model(tmp_path, Loading())
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_config_of_another_shape_is_one_line(tmp_path):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    config = (tmp_path / "config.json").read_text().replace('"hidden_size": 48', '"hidden_size": 64')
    (tmp_path / "config.json").write_text(config)

    with pytest.raises(ModelError, match="hidden_size"):
        load_model(tmp_path, Loading())


def test_pickled_weights_are_refused(tmp_path):
    shutil.copytree(saved("gemma3"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pytorch_model.bin")

    with pytest.raises(ModelError, match="safetensors"):
        load_model(tmp_path, Loading())


def test_a_device_that_is_not_here_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ModelError, match="no CUDA device"):
        load_model(speaking(), Loading(device="cuda"))
