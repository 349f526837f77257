"""Loading a model by name, and one-line errors."""

import json
import os
import shutil
from importlib.util import find_spec

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.linear import quant_linear
from specchat.forward.llama.llama import LlamaModel
from specchat.hub.find_models import find_model
from specchat.profile.profile_files import load_profile
from specchat.weights import load
from specchat.weights.context_window import trained_context_window
from specchat.weights.llama_weights import load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.quantized_models import saved_network
from tests.tiny import answer, saved, speaking


def test_a_llama_like_model_runs_in_forward_llama():
    model = load_model(speaking(), LoadOptions(dtype="float32"))

    assert isinstance(model, LlamaModel)
    assert model.pool.layout.dtype == torch.float32


def test_another_architecture_runs_in_transformers():
    from specchat.forward.transformers.transformers_model import TransformersModel

    assert isinstance(load_model(saved("cohere"), LoadOptions(dtype="float32")), TransformersModel)


def test_a_kv_cache_in_8_bits_takes_a_byte_for_each_number_and_four_for_each_scale():
    model = load_model(speaking(), LoadOptions(dtype="float32", kv_cache="int8"))

    assert isinstance(model, LlamaModel)
    [(heads, key_size, value_size), *_others] = model.pool.layout.shapes
    assert model.pool.layout.bytes_per_row == model.dimensions.layers * heads * (key_size + value_size + 8)


def test_a_kv_cache_in_8_bits_is_refused_by_networks_of_transformers():
    with pytest.raises(ModelError, match="models in our own passes only; use --kv-cache float"):
        load_model(saved("cohere"), LoadOptions(dtype="float32", kv_cache="int8"))


def test_a_kv_cache_in_8_bits_is_refused_on_a_gpu(monkeypatch):
    monkeypatch.setattr(load, "_resolve_device", lambda _name: torch.device("cuda"))
    monkeypatch.setattr(load, "prepare", lambda _device: None)

    with pytest.raises(ModelError, match="for CPUs, not for device cuda; use --kv-cache float"):
        load_model(saved("llama"), LoadOptions(dtype="float32", kv_cache="int8"))


def test_a_context_window_is_at_most_that_of_the_model():
    assert load_model(speaking(), LoadOptions(context_window=100)).context_window == 100
    assert load_model(speaking(), LoadOptions(context_window=10**6)).context_window == 32768


def test_weights_take_the_bytes_of_their_dtype():
    stored = sum(tensor.numel() for tensor in load_tensors(speaking()).values())

    for dtype, size in (("float32", 4), ("bfloat16", 2)):  # packed weights are padded to whole blocks
        assert stored * size <= load_model(speaking(), LoadOptions(dtype=dtype)).bytes < stored * size * 1.4


def load_tensors(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_missing_folder_is_a_clear_error():
    with pytest.raises(ModelError, match="no such folder"):
        find_model("/nowhere/at/all")


def test_a_folder_without_a_model_names_what_is_missing(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        find_model(str(tmp_path))


def test_another_file_is_not_a_model(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"weights")

    with pytest.raises(ModelError, match="a model is a GGUF file, or a folder"):
        find_model(str(tmp_path / "model.bin"))


def test_an_uncached_hub_id_without_a_network_says_what_to_do(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, or give a folder"):
        find_model("nobody/nothing-0.5B")


def test_a_broken_file_is_a_one_line_error(tmp_path):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes(b"not a tensor in sight")

    with pytest.raises(ModelError) as caught:
        load_model(tmp_path, LoadOptions())
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_config_of_another_shape_is_a_one_line_error(tmp_path):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    config = (tmp_path / "config.json").read_text().replace('"hidden_size": 48', '"hidden_size": 64')
    (tmp_path / "config.json").write_text(config)

    with pytest.raises(ModelError, match=r"model\.embed_tokens\.weight has the shape \[264, 48\]"):
        load_model(tmp_path, LoadOptions())


def test_pickled_weights_are_refused(tmp_path):
    shutil.copytree(saved("cohere"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pytorch_model.bin")

    with pytest.raises(ModelError, match="safetensors"):
        load_model(tmp_path, LoadOptions())


def test_weights_are_quantized_and_the_embedding_is_not():
    whole, small = (
        load_model(saved_network(), LoadOptions(dtype="float32", quant_format=weights)) for weights in ("float", "int8")
    )

    assert small.bytes < 0.6 * whole.bytes
    assert torch.equal(small.weights.embedding, whole.weights.embedding)


def test_a_tied_output_matrix_is_a_quantized_copy_of_the_embedding():
    model = load_model(saved_network(tied=True), LoadOptions(dtype="bfloat16", quant_format="int8"))
    tokens = torch.arange(8)

    scores = model.compute_logits(model.embed(tokens)).float()
    expected = model.embed(tokens).float() @ model.weights.embedding.float().T

    assert float((scores - expected).norm() / expected.norm()) < 0.03
    assert model.weights.embedding.dtype == torch.bfloat16


def test_missing_int8_hardware_is_a_warning(monkeypatch, capsys):
    monkeypatch.setattr(quant_linear, "multiplies_blocks", lambda: False)
    monkeypatch.setattr(quant_linear, "packed_linear", lambda *_: None)

    model = load_model(saved_network(), LoadOptions(dtype="float32", quant_format="int8"))

    assert capsys.readouterr().err.count("dequantized in every pass") == 1
    assert answer(model, Drafter(), [1, 2, 3], Sampler(), limit=4)


def test_a_device_that_is_too_small_says_what_to_do(monkeypatch):
    monkeypatch.setattr(load, "load_llama", out_of_memory)

    with pytest.raises(ModelError, match="does not fit the memory of cpu; try --weights nf4"):
        load_model(saved_network(), LoadOptions())
    with pytest.raises(ModelError, match="choose a smaller model"):
        load_model(saved_network(), LoadOptions(quant_format="nf4"))


def test_the_embedding_moves_to_the_cpu_when_the_device_is_too_small(monkeypatch, capsys):
    calls = list[dict[str, object]]()

    def load_when_small(*_arguments: object, **options: object) -> LlamaModel:
        calls.append(options)
        if "embedding_device" not in options:
            raise torch.OutOfMemoryError
        return load_llama(saved_network(), torch.float32, torch.device("cpu"), None, BatchLimits())

    monkeypatch.setattr(load, "load_llama", load_when_small)
    monkeypatch.setattr(load, "_resolve_device", lambda _name: torch.device("cuda"))

    assert load_model(saved_network(), LoadOptions(quant_format="int8"))
    assert [options.get("embedding_device") for options in calls] == [None, torch.device("cpu")]
    assert "embedding stays on the CPU" in capsys.readouterr().err
    with pytest.raises(ModelError, match="does not fit"):
        load_model(saved_network(), LoadOptions(embedding_device="device"))


def out_of_memory(*_arguments: object, **_options: object) -> LlamaModel:
    raise torch.OutOfMemoryError


def in_four_bits(folder):
    """A 4-bit checkpoint of bitsandbytes; its rows are whole blocks."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=128)).save_pretrained(folder / "float")
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    network = AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=quantization)
    network.save_pretrained(folder)
    for path in speaking().glob("tokenizer*.json"):
        shutil.copy(path, folder)
    return network


@pytest.mark.full
@pytest.mark.skipif(not find_spec("accelerate"), reason="transformers needs accelerate for such checkpoints")
def test_a_4_bit_checkpoint_runs_in_transformers_with_the_same_text(tmp_path):
    from specchat.forward.transformers.transformers_model import TransformersModel

    network = in_four_bits(tmp_path)
    prompt = [5, 6, 7, 8, 5, 6, 7]

    model = load_model(tmp_path, LoadOptions())

    assert isinstance(model, TransformersModel)
    theirs = network.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :]
    assert theirs.tolist() == answer(model, Drafter(), prompt, Sampler(), limit=12)


def test_without_accelerate_a_4_bit_checkpoint_names_the_missing_package(tmp_path, monkeypatch):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("transformers.quantizers.quantizer_bnb_4bit.is_accelerate_available", lambda *_: False)

    with pytest.raises(ModelError, match="accelerate"):
        load_model(tmp_path, LoadOptions())


def test_a_missing_cuda_device_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ModelError, match="finds no GPU of NVIDIA or AMD; use --device cpu"):
        load_model(speaking(), LoadOptions(device="cuda"))


def test_an_unknown_architecture_is_an_error_that_names_it_and_says_what_to_do(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "zeta", "architectures": ["ZetaForCausalLM"]}')

    with pytest.raises(ModelError, match=r"does not know its architecture \(zeta\).*'specchat models list'"):
        load_model(tmp_path, LoadOptions(dtype="float32"))


@pytest.mark.timeout(180)
@each_row("name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"])
def test_a_named_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path, name):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)

    assert trained_context_window(str(tmp_path)) in (None, 32768)
    assert load_profile("chat", {"models.target": str(tmp_path)})
    with pytest.raises(ModelError, match=r"not a model|no regular file"):
        find_model(str(tmp_path))


@pytest.mark.timeout(180)
def test_a_named_pipe_as_a_head_is_refused(tmp_path):
    os.mkfifo(tmp_path / "head.safetensors")

    for source in (tmp_path, tmp_path / "head.safetensors"):
        with pytest.raises(ModelError, match="no regular file"):
            find_model(str(source), "head")
