"""Damaged and hostile model folders: refused with one line before anything is computed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.chat.events import Failed
from specchat.chat.request import Request
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.tiny import saved, speaking

LAYER = "model.layers.1"
JSON_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json")


@pytest.fixture
def folder(tmp_path) -> Path:
    return shutil.copytree(speaking(), tmp_path / "model")


def change_tensor(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    changed = change(tensors.pop(name))
    save_file(tensors | ({} if changed is None else {name: changed.contiguous()}), folder / "model.safetensors")


def change_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(ModelError) as refused:
        load_model(folder, LoadOptions(dtype="float32", **options))
    assert "\n" not in str(refused.value)
    return str(refused.value)


TENSORS = (
    "model.norm.weight", "model.embed_tokens.weight", f"{LAYER}.input_layernorm.weight",
    f"{LAYER}.post_attention_layernorm.weight", *(f"{LAYER}.self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"{LAYER}.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
)  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_with_one_row_is_refused_by_its_name(folder, name):
    change_tensor(folder, name, lambda tensor: tensor[:1])

    assert name in refusal(folder)


@pytest.mark.parametrize("cut", [lambda tensor: tensor[:, :-1], lambda _tensor: None], ids=["cut", "missing"])
def test_so_is_one_that_is_cut_or_missing(folder, cut):
    change_tensor(folder, f"{LAYER}.mlp.down_proj.weight", cut)

    assert f"{LAYER}.mlp.down_proj.weight" in refusal(folder)


def test_the_refusal_says_both_shapes(folder):
    change_tensor(folder, "model.norm.weight", lambda tensor: tensor[:1])

    assert "model.norm.weight has the shape [1], and config.json means [48]" in refusal(folder)


@pytest.mark.parametrize("name", ["model.norm.weight", f"{LAYER}.mlp.up_proj.weight"])
@pytest.mark.parametrize("quant_format", ["float", "int8"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_their_name(folder, name, quant_format, value):
    def damage(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[-1] = value
        return tensor

    change_tensor(folder, name, damage)

    assert f"{name} contains NaN or infinite values" in refusal(folder, quant_format=quant_format)


@each_row(
    "changes, reason",
    [
        ({"num_kv_shared_layers": 5}, "a layer reads the keys of an earlier layer of its kind"),
        ({"num_kv_shared_layers": "many"}, "its layers cannot be read"),
        ({"per_layer_config": {"1": {"head_dim": 15}}}, "a head cannot have 15 numbers"),
        ({"per_layer_config": {"1": {"num_key_value_heads": "2"}}}, "num_key_value_heads of a layer must be a number"),
        ({"vocab_size_per_layer_input": 95}, "vocab_size_per_layer_input (95) must not be below vocab_size (96)"),
        ({"hidden_size_per_layer_input": 7}, "model.embed_tokens_per_layer.weight has the shape [96, 30]"),
    ],
)
def test_layers_that_no_gemma_4_can_have_are_refused(tmp_path, changes, reason):
    folder = shutil.copytree(saved("gemma4"), tmp_path / "model")
    change_config(folder, **changes)

    assert reason in refusal(folder)


def test_a_weight_that_the_dtype_cannot_hold_is_refused(folder):
    change_tensor(folder, "model.norm.weight", lambda tensor: tensor * 1e30)

    with pytest.raises(ModelError, match=r"model\.norm\.weight contains numbers that are too large for float16"):
        load_model(folder, LoadOptions(dtype="float16"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", 3_000_000_000), ("hidden_size", 0), ("hidden_size", "48"), ("num_hidden_layers", 10**9),
        ("num_attention_heads", -4), ("num_attention_heads", None), ("num_key_value_heads", 3), ("head_dim", 7),
        ("intermediate_size", 2.5), ("max_position_embeddings", 10**30), ("rms_norm_eps", "small"),
        ("rms_norm_eps", -1), ("rope_theta", 0), ("rope_theta", float("nan")),
        ("rope_parameters", {"rope_theta": -1.0}), ("layer_types", ["full_attention"]), ("sliding_window", -1),
    ],
)  # fmt: skip
def test_a_number_that_no_model_has_is_refused_by_its_key(folder, key, value):
    change_config(folder, **{key: value})

    assert re.search(rf"config\.json: .*({key}|key-value heads|a head cannot|rope_theta)", refusal(folder))


def test_the_rotary_table_has_the_positions_of_the_context_window_only(folder):
    change_config(folder, max_position_embeddings=10_000_000)

    model = load_model(folder, LoadOptions(dtype="float32", context_window=512))

    assert isinstance(model, LlamaModel)
    assert len(model.weights.ropes[0].cos) == 512 + SCRATCH_ROWS


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_of_numbers_that_are_not_finite_fails(folder, temperature):
    change_tensor(folder, "model.norm.weight", lambda tensor: tensor * 0 + 3e38)
    with load_engine(Profile().override({"models.target": str(folder)})).create_session() as session:
        *_, failed = session.ask(Request("hello", temperature=temperature, variant="plain"))

    assert failed == Failed.from_error(ModelError(failed.message))
    assert "the model computes numbers that are not finite" in failed.message


@pytest.mark.parametrize("token_id", [3_000_000_000, 2**24])
def test_a_vocabulary_with_an_absurd_token_id_is_refused(folder, token_id):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["absurd"] = token_id
    (folder / "tokenizer.json").write_text(json.dumps(content))

    with pytest.raises(ModelError, match=rf"tokenizer\.json: .*{token_id}"):
        Tokenizer(folder)


def test_a_model_of_another_architecture_with_damaged_weights_is_refused(tmp_path):
    folder = shutil.copytree(saved("cohere"), tmp_path / "model")
    change_tensor(folder, "model.norm.weight", lambda tensor: tensor[:1])

    assert "model.norm.weight has the shape [1], and config.json means [48]" in refusal(folder)


@each_row("change", [lambda _tensor: None, lambda tensor: tensor * float("nan")])
def test_so_is_one_with_missing_weights_and_one_with_weights_that_are_no_numbers(tmp_path, change):
    folder = shutil.copytree(saved("cohere"), tmp_path / "model")
    change_tensor(folder, "model.norm.weight", change)

    assert "model.norm.weight" in refusal(folder)


def test_a_cpu_without_float16_matmuls_in_onednn_computes_them_with_torch(folder):
    model = load_model(folder, LoadOptions(dtype="float16"))

    assert model.pool.layout.dtype == torch.float16


@pytest.fixture
def mixture(tmp_path) -> Path:
    return shutil.copytree(saved("qwen3_moe"), tmp_path / "mixture")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_experts", -1), ("num_experts_per_tok", 7), ("num_experts_per_tok", None), ("moe_intermediate_size", 0),
        ("decoder_sparse_step", 0),
    ],
)  # fmt: skip
def test_a_mixture_that_no_model_has_is_refused(mixture, key, value):
    change_config(mixture, **{key: value})

    assert re.search(rf"config\.json: .*({key}|cannot choose 7 of 6 experts)", refusal(mixture))


@pytest.mark.parametrize("name", ["gate", "experts.0.up_proj", "experts.5.down_proj"])
@pytest.mark.parametrize("change", [lambda tensor: tensor[:1], lambda _tensor: None], ids=["one row", "missing"])
def test_the_tensors_of_experts_are_checked(mixture, name, change):
    change_tensor(mixture, f"model.layers.2.mlp.{name}.weight", change)

    assert f"model.layers.2.mlp.{name}.weight" in refusal(mixture)


@pytest.mark.parametrize("name", ["gate", "experts.0.up_proj", "experts.5.down_proj"])
def test_biases_of_another_size_are_refused(mixture, name):
    path, layer = mixture / "model.safetensors", f"model.layers.2.mlp.{name}"
    save_file(load_file(path) | {f"{layer}.bias": torch.ones(1)}, path)

    assert re.search(r"bias.*shape \[1\]", refusal(mixture))


@each_row(
    "name content",
    [
        *((name, text) for name in JSON_FILES for text in ("5", "null", "{" * 100_000)),
        *(("generation_config.json", json.dumps({"eos_token_id": value})) for value in (1.5, [[1]], {"a": 1})),
        ("tokenizer_config.json", '{"chat_template": 1}'),
        ("tokenizer_config.json", '{"chat_template": {"a": "b"}}'),
    ],
)
def test_values_of_other_types_beside_a_tokenizer_are_refused(tmp_path, name, content):
    folder = shutil.copytree(speaking(), tmp_path / "copy")
    (folder / name).write_text(content)

    with pytest.raises(ModelError) as caught:
        Tokenizer(folder)

    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
