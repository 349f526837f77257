"""Networks that count, so that costs can be measured without weights."""

import json

import pytest
import torch
from safetensors.torch import load_file

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import InputError
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.counting import CONFIG, counting
from tests.each_row import each_row
from tests.tiny import answer
from tools.random_models import FIRST_NUMBER, counting_edit_prompts, random_model_folder


@each_row("dtype", ["float32", "bfloat16"])
def test_a_network_nobody_trained_counts_in_every_precision(tmp_path, dtype):
    model = load_model(counting(tmp_path), LoadOptions(dtype))

    assert [311, 312, 313, 314] == answer(model, Drafter(), [500, 400, 310], Sampler(), limit=4)


def test_so_does_one_with_the_layers_of_gemma(tmp_path):
    changes = {"model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 16, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | changes))
    model = load_model(random_model_folder(str(tmp_path / "config.json"), tmp_path), LoadOptions("bfloat16"))

    assert [311, 312, 313, 314] == answer(model, Drafter(), [500, 400, 310], Sampler(), limit=4)


def test_so_does_one_with_the_layers_of_gemma_4(tmp_path):
    changes = {
        "model_type": "gemma4_text", "num_hidden_layers": 4, "num_kv_shared_layers": 2, "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 16, "global_head_dim": 32,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": CONFIG["vocab_size"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | changes))
    model = load_model(random_model_folder(str(tmp_path / "config.json"), tmp_path), LoadOptions("bfloat16"))

    assert [311, 312, 313, 314] == answer(model, Drafter(), [500, 400, 310], Sampler(), limit=4)


def test_so_does_a_mixture_of_experts(tmp_path):
    model = load_model(counting(tmp_path, "qwen3_moe"), LoadOptions("bfloat16"))

    assert [311, 312, 313, 314] == answer(model, Drafter(), [500, 400, 310], Sampler(), limit=4)


def test_different_tokens_choose_different_experts(tmp_path):
    folder = counting(tmp_path, "qwen3_moe")
    router = load_file(folder / "model-00001.safetensors")["model.layers.0.mlp.gate.weight"]
    embeddings = load_file(folder / "model-00000.safetensors")["model.embed_tokens.weight"]

    chosen = (embeddings[300:308] @ router.T).topk(2).indices

    assert len(router) == 16
    assert 8 < len(chosen.unique()) < 16


def test_a_shape_is_written_once(tmp_path):
    folder = counting(tmp_path)
    written = (folder / "config.json").stat().st_mtime_ns

    assert counting(tmp_path) == folder
    assert written == (folder / "config.json").stat().st_mtime_ns


def test_a_shape_of_another_family_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "mamba"}))

    with pytest.raises(InputError, match="not one of llama, mistral"):
        random_model_folder(str(tmp_path / "config.json"), tmp_path)


def test_an_unknown_shape_is_told_what_there_is(tmp_path):
    with pytest.raises(InputError, match=r"0\.5b, gemma-270m, gemma4-360m, moe-0\.7b-a0\.1b, 8b"):
        random_model_folder("3b", tmp_path)


def test_an_edit_shows_most_of_its_answer():
    [prompt] = counting_edit_prompts(1, length=200, replaced_interval=20, vocab_size=1000)

    *shown, last = prompt
    expected = list(range(last + 1, last + 201))
    assert FIRST_NUMBER <= last + 1
    assert 0.8 < torch.tensor(shown).eq(torch.tensor(expected)).float().mean() < 0.95
