"""The sampling that a model's authors advise: where it is read, what it is weaker than, and what it never changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.chat.request import Request
from specchat.profile.keys import Sampling
from specchat.profile.model_advice import sampling_of
from specchat.profile.profile_files import load_profile, read_profile_chain
from specchat.profile.validation import merge_sources
from tests.each_row import each_row

SMOLLM2 = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
SAMPLED = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05}


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def model(folder: Path, generation_config: dict | None = None, config: dict | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or {}))
    if generation_config is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation_config))
    return folder


def sampling_for(target: object, profile: str = "chat") -> Sampling:
    return load_profile(profile, {"models.target": str(target)}).sampling


@each_row(
    "generation_config, sampling",
    [
        (SAMPLED, {name: value for name, value in SAMPLED.items() if name != "do_sample"}),
        ({"do_sample": True}, {"temperature": 1.0}),
        ({"do_sample": True, "top_k": None, "min_p": 0.1}, {"temperature": 1.0, "min_p": 0.1}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.0}),
        ({"temperature": 0.6, "repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({}, {}),
    ],
)
def test_only_with_do_sample_a_model_is_sampled(generation_config, sampling):
    assert sampling == sampling_of(generation_config)


def test_the_file_beside_the_weights_decides_and_a_profile_is_stronger(tmp_path):
    folder = model(tmp_path / "model", SAMPLED)

    assert Sampling(0.6, 20, 0.95, 0.0, 1.05) == sampling_for(folder)
    assert 0.9 == sampling_for(folder, "creative").temperature
    assert 0.0 == sampling_for(folder, "code").temperature


def test_a_model_in_the_cache_of_the_hub_is_read_too(tmp_path):
    home = tmp_path / "hub" / "models--org--name"
    model(home / "snapshots" / "abc", SAMPLED)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")

    assert 0.6 == sampling_for("org/name").temperature
    assert Sampling() == sampling_for("org/other")


@each_row("generation_config", [{**SAMPLED, "top_p": 7}, {**SAMPLED, "temperature": -1}])
def test_values_that_no_profile_could_have_count_for_nothing(tmp_path, generation_config):
    assert Sampling() == sampling_for(model(tmp_path / "model", generation_config))


@each_row("target", ["starter", "HuggingFaceTB/SmolLM2-135M-Instruct", "/models/smollm2-135m-instruct.Q4_1.gguf"])
def test_a_model_whose_files_say_nothing_is_advised_by_its_name(target):
    assert Sampling(0.2, top_p=0.9) == sampling_for(target)


def test_a_folder_of_any_name_is_advised_by_the_shape_of_the_model(tmp_path):
    assert Sampling(0.2, top_p=0.9) == sampling_for(model(tmp_path / "mine", {}, SMOLLM2))
    assert Sampling() == sampling_for(model(tmp_path / "other", {}, {**SMOLLM2, "vocab_size": 50000}))
    assert 0.0 == sampling_for(model(tmp_path / "greedy", {"do_sample": False}, SMOLLM2)).temperature


def test_the_embedded_model_stays_greedy_and_every_value_names_its_origin(tmp_path):
    assert Sampling() == sampling_for("embedded")

    chain = read_profile_chain("chat")
    folder = model(tmp_path / "mine", {"repetition_penalty": 1.1}, SMOLLM2)
    settings = merge_sources(load_profile("chat", {"models.target": str(folder)}), chain)

    assert "advice for SmolLM2-135M-Instruct" == str(settings.origin("sampling", "temperature"))
    assert f"model {folder / 'generation_config.json'}" == str(settings.origin("sampling", "repetition_penalty"))


def test_an_edit_is_greedy_and_may_copy_unless_the_request_says_otherwise():
    penalties = {"repetition_penalty": 1.1, "frequency_penalty": 1.0, "presence_penalty": 1.0}
    advised = Sampling(0.6, top_p=0.9, seed=3, **penalties)

    assert Sampling(0.0, top_p=0.9, repetition_penalty=1.0, seed=3) == Request("x", task="edit").sampling(advised)
    assert 0.5 == Request("x", task="edit", temperature=0.5).sampling(advised).temperature
    assert advised == Request("x").sampling(advised)
    assert (0.0, 4) == ((asked := Request("x", temperature=0, seed=4).sampling(advised)).temperature, asked.seed)
