"""Quantized once: the next load reads the layers, computes the same bits, and quantizes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.hub.remove import plan_removal
from specchat.paths import kept_weights_folder, kept_weights_of
from specchat.weights import kept_weights, tensor_files
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.fake_gpu import fake_gpu
from tests.quantized_models import saved_network
from tests.tiny import answer, saved

PROMPT = list(range(5, 25))


@pytest.fixture(autouse=True)
def keeps_small_models(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_weights, "MIN_SOURCE_BYTES", 0)
    monkeypatch.setattr(kept_weights, "SPARE_DISK_BYTES", 0)


def load(folder: Path, weights: str, device: str = "cpu", *, maps: bool = False) -> Model:
    return load_model(folder, LoadOptions("bfloat16", device, 256, quant_format=weights, maps_weights=maps))


def text(model: Model) -> list[int]:
    return answer(model, Drafter(), PROMPT, Sampler(0.8, seed=1), limit=12)


def fail_if_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "quant_linear", lambda *_: pytest.fail("a layer was quantized again"))


@each_row("weights", ["int8", "nf4", "nf4-double"])
def test_the_second_load_on_a_cpu_quantizes_nothing_and_writes_the_same_text(monkeypatch, weights):
    first = text(load(saved_network(), weights))
    fail_if_quantized(monkeypatch)

    assert first == text(load(saved_network(), weights))


@each_row("weights", ["int8", "nf4-double"])
def test_the_second_load_on_a_gpu_quantizes_nothing_and_writes_the_same_text(monkeypatch, weights):
    with fake_gpu():
        first = text(load(saved_network(tied=True), weights, "cuda"))
        fail_if_quantized(monkeypatch)

        assert first == text(load(saved_network(tied=True), weights, "cuda"))


def test_experts_are_kept_one_by_one(monkeypatch):
    first = text(load(saved("qwen3_moe"), "int8"))
    experts = len([*next(iter(kept_weights_of(saved("qwen3_moe")))).iterdir()])

    assert experts > 2 * 6
    assert first == text(load(saved("qwen3_moe"), "int8"))


def test_experts_that_stay_in_their_files_are_one_file_a_layer():
    """Beside those that were kept one by one while the memory held them."""
    first = text(load(saved("qwen3_moe"), "int8"))
    (folder,) = kept_weights_of(saved("qwen3_moe"))
    before = len([*folder.iterdir()])

    assert first == text(load(saved("qwen3_moe"), "int8", maps=True))
    assert len([*folder.iterdir()]) == before + 2  # layers of experts


def test_weights_that_the_memory_does_not_hold_stay_in_their_files():
    assert text(load(saved_network(), "int8")) == text(load(saved_network(), "int8", maps=True))

    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert str(kept_weights_folder()) not in mapped
    model = load(saved_network(), "int8", maps=True)
    assert model is not None and str(kept_weights_folder()) in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_another_file_another_format_and_a_small_model_have_no_kept_weights(monkeypatch, tmp_path):
    load(saved_network(), "int8")
    weights = saved_network() / "model.safetensors"
    os.utime(weights, (1, 1))
    load(saved_network(), "int8")
    load(saved_network(), "float")
    assert len(kept_weights_of(saved_network())) == 2

    monkeypatch.setattr(kept_weights, "MIN_SOURCE_BYTES", 2**30)
    load(saved_network(), "nf4")
    assert len(kept_weights_of(saved_network())) == 2


def test_a_damaged_file_is_quantized_again_and_its_folder_removed():
    first = text(load(saved_network(), "int8"))
    (folder,) = kept_weights_of(saved_network())
    next(iter(sorted(folder.iterdir()))).write_bytes(b"PK")

    assert first == text(load(saved_network(), "int8"))
    assert not folder.exists()
    assert first == text(load(saved_network(), "int8"))
    assert folder.exists()


def test_a_file_with_anything_but_layers_is_not_read(tmp_path):
    load(saved_network(), "int8")
    (folder,) = kept_weights_of(saved_network())
    for file in folder.iterdir():
        torch.save(os.system, file)

    assert text(load(saved_network(), "int8"))
    assert not folder.exists()


def test_a_load_that_fails_leaves_nothing(monkeypatch):
    monkeypatch.setattr(tensor_files, "is_finite", lambda _tensor: False)
    with pytest.raises(ModelError, match="NaN"):
        load(saved_network(), "int8")

    assert not list(kept_weights_folder().iterdir())


def test_those_used_longest_ago_go_first(monkeypatch):
    load(saved_network(), "int8")
    (older,) = kept_weights_of(saved_network())
    os.utime(older, (1, 1))
    monkeypatch.setattr(kept_weights, "MAX_KEPT_BYTES", 1)
    load(saved_network(), "nf4")

    (newer,) = kept_weights_of(saved_network())
    assert newer != older


def test_they_are_removed_with_their_model():
    load(saved_network(), "int8")
    (folder,) = kept_weights_of(saved_network())

    removal = plan_removal(str(saved_network()))
    assert removal.folder == folder and removal.freed_bytes > 0
    removal.run()
    assert not folder.exists() and saved_network().is_dir()
