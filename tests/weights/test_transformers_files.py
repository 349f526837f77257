"""Files that transformers would load with random numbers, or leave out: refused by name, in one line."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.errors import ModelError
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tools.zoo_networks import SIZES, tiny_config, tiny_network

OPTIONS = LoadOptions(dtype="float32", device="cpu")


@pytest.fixture
def folder(tmp_path):
    tiny_network("gpt_neox").save_pretrained(tmp_path)
    return tmp_path


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(change(tensors), path, metadata={"format": "pt"})


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def refusal(folder):
    with pytest.raises(ModelError) as refused:
        load_model(folder, OPTIONS)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_missing_tensors_are_refused_with_their_number_and_the_first_names(folder):
    change_tensors(folder, lambda tensors: {name: each for name, each in tensors.items() if "mlp.dense" not in name})

    assert "no file holds 16 tensors: gpt_neox.layers.0.mlp.dense_4h_to_h.bias, " in refusal(folder)


def test_unexpected_tensors_are_refused_with_their_number_and_the_first_names(folder):
    change_tensors(folder, lambda tensors: tensors | {f"adapter.{n}.weight": torch.zeros(1) for n in range(5)})

    assert "no place for 5 tensors: adapter.0.weight, adapter.1.weight, adapter.2.weight, ..." in refusal(folder)


@pytest.mark.dear
@pytest.mark.parametrize(
    "name", ["gpt_neox.layers.9.mlp.weight", "visual.patch.weight", "mtp.fc.weight", "gpt_neox.rotary.inv_freq"]
)
def test_parts_beside_the_text_network_and_computed_buffers_are_not(folder, name):
    change_tensors(folder, lambda tensors: tensors | {name: torch.zeros(1)})

    assert load_model(folder, OPTIONS).supports_trees


def test_a_tied_output_matrix_is_not_missing(tmp_path):
    tiny_network("gpt2", tie_word_embeddings=True).save_pretrained(tmp_path)

    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert load_model(tmp_path, OPTIONS).supports_trees


def test_an_unknown_quant_method_is_refused(folder):
    change_config(folder, quantization_config={"quant_method": "halfbit", "bits": 0.5})

    assert "the quant_method 'halfbit', which transformers does not know" in refusal(folder)


@pytest.mark.full
def test_the_text_part_of_a_model_for_images_answers_as_the_whole_model(tmp_path):
    import transformers

    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**vision, image_size=8, patch_size=4),
        text_config=tiny_config("llama"), image_token_index=SIZES["vocab_size"] - 1,
    )  # fmt: skip
    torch.manual_seed(1)
    network = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    network.save_pretrained(tmp_path)

    model = load_model(tmp_path, OPTIONS)

    cache, tokens = model.pool.open(), [*range(5, 25)]
    with model.pool.acquire_slot(cache, 64):
        logits = model.prefill(tokens, cache).logits
    with torch.inference_mode():
        whole = network(input_ids=torch.tensor([tokens])).logits[0, -1:]
    assert model.supports_trees
    torch.testing.assert_close(logits, whole, atol=1e-3, rtol=1e-3)


def test_a_config_over_which_transformers_stumbles_is_one_line(folder):
    change_config(folder, num_attention_heads=0)

    assert "cannot be loaded: " in refusal(folder)
