"""Checkpoints that were published in 8 bits run in `LlamaModel`, with the numbers that their bytes stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.devices import GGUF_FORMAT
from specchat.engine.drafter import Drafter
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.linear import linear
from specchat.forward.linear.quant_linear import QUANT_FORMATS
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.fp8_checkpoints import Fp8TensorFiles
from specchat.weights.llama_weights import config_dtype, is_llama_like, load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat.weights.tensor_files import TensorFiles
from tests.cover import matrix
from tests.each_row import each_row
from tests.engine.test_lossless import SAMPLERS, STOPS, two_turns
from tests.tiny import Chaos
from tests.weights.eight_bits import LAYOUTS, write
from tests.weights.test_peak import MOST, SIZES, final_and_peak

CPU = torch.device("cpu")
TEXT = [5, 9, 17, 33, 60, 2, 2, 81]
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder in DeepSeek's layout, and the same weights as floats."""
    return write(tmp_path_factory.mktemp("published"), "deepseek")


def logits_of(model: LlamaModel) -> torch.Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64), torch.inference_mode():
        return model.prefill(TEXT, cache).logits.float().clone()


def loaded(folder: Path, dtype: torch.dtype | None = torch.float32, weights: str = "float", **limits) -> LlamaModel:
    return load_llama(
        folder, dtype, CPU, None, BatchLimits(prefill_chunk=16, max_rows=32, **limits), quant_format=weights
    )


@pytest.mark.parametrize(("layout", "family"), matrix(list(LAYOUTS), FAMILIES))
def test_a_published_layout_has_the_logits_of_its_float_weights(layout, family, tmp_path):
    folder = write(tmp_path, layout, family)
    assert is_llama_like(json.loads((folder / "small" / "config.json").read_text()))

    logits, expected = (logits_of(loaded(folder / name)) for name in ("small", "float"))

    assert torch.equal(logits, expected)
    assert float(expected.std()) > 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weights", sorted(set(QUANT_FORMATS) - {GGUF_FORMAT}))
def test_it_can_be_loaded_in_every_format(weights, dtype, published):
    small, same = (loaded(published / name, dtype, weights) for name in ("small", "float"))

    assert torch.equal(logits_of(small), logits_of(same))
    assert small.bytes == same.bytes


def test_other_quantizations_are_left_to_transformers(published):
    config = json.loads((published / "small" / "config.json").read_text())

    for other in (
        {"quant_method": "bitsandbytes"},
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        "fp8",
    ):
        assert not is_llama_like(config | {"quantization_config": other})


@each_row(
    "config, dtype",
    [
        ({"dtype": "bfloat16"}, torch.bfloat16), ({"torch_dtype": "float16"}, torch.float16),
        ({"torch_dtype": "torch.bfloat16"}, torch.bfloat16), ({"dtype": "float32"}, torch.float32),
        ({"dtype": "float8_e4m3fn"}, torch.bfloat16), ({"dtype": None}, torch.bfloat16), ({}, torch.bfloat16),
    ],
)  # fmt: skip
def test_the_dtype_is_from_the_config_and_never_has_eight_bits(config, dtype):
    assert config_dtype(config) == dtype


@each_row("dtype, changes", [("bfloat16", {}), ("float32", {"dtype": "float32"})])
def test_the_default_dtype_is_that_of_the_config(dtype, changes, tmp_path):
    model = loaded(write(tmp_path, "outputs", "llama", **changes) / "small", dtype=None)

    layer = model.weights.layers[0]
    assert {
        model.weights.embedding.dtype,
        layer.post_attention_layernorm.dtype,
        layer.self_attn.qkv_proj.weight.dtype,
    } == {getattr(torch, dtype)}
    assert model.pool.layout.dtype == getattr(torch, dtype)


def test_floats_without_scales_keep_the_dtype_of_the_file(published):
    assert loaded(published / "float", dtype=None).weights.embedding.dtype == torch.float32


@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", "16 bits, twice"), ("float32", "32 bits, four times")])
def test_the_size_of_float_weights_is_reported_once_with_a_remedy(dtype, times, published, capsys):
    model = load_model(published / "small", LoadOptions(dtype=dtype))

    size = f"{model.bytes / 2**20:.1f} MiB in all"
    line = f"small: 8-bit weights are dequantized to {times} the memory ({size}); --weights int8 keeps 8 bits\n"
    assert capsys.readouterr().err.count(line) == 1


def test_weights_that_keep_their_size_are_not_reported(published, capsys, monkeypatch):
    monkeypatch.setattr("specchat.weights.load.hardware_warning", lambda *_given: "")

    load_model(published / "small", LoadOptions(dtype="bfloat16", quant_format="fp8"))
    load_model(published / "float", LoadOptions(dtype="bfloat16"))

    assert capsys.readouterr().err == ""


def test_weights_are_quantized_chunk_by_chunk(published, monkeypatch):
    complete, chunks = set[str](), dict[str, list[int]]()
    read_stored, read_rows = TensorFiles.read_tensor, Fp8TensorFiles.read_rows

    def watched(self, name):
        complete.add(name)
        return read_stored(self, name)

    def watched_rows(self, name, first, last):
        chunks.setdefault(name, []).append(last - first)
        return read_rows(self, name, first, last)

    monkeypatch.setattr(TensorFiles, "read_tensor", watched)
    monkeypatch.setattr(Fp8TensorFiles, "read_rows", watched_rows)
    monkeypatch.setattr(linear, "CHUNK_ELEMENTS", 32 * 160)

    loaded(published / "small", torch.bfloat16, "fp8")

    assert not {name for name in complete if name.endswith("_proj.weight")}
    assert max(max(heights) for name, heights in chunks.items() if name not in complete) == 32
    assert len(chunks["model.layers.1.mlp.down_proj.weight"]) == 160 // 32


def test_scales_of_another_shape_are_one_line(published, tmp_path):
    tensors = load_file(published / "small" / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[f"{name}_scale_inv"] = tensors[f"{name}_scale_inv"][:1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((published / "small" / "config.json").read_text())

    with pytest.raises(ModelError, match=rf"{name} \[288, 160\] .* has \[3, 2\] scales, .* \[1, 2\]\Z"):
        load_model(tmp_path, LoadOptions(dtype="bfloat16", quant_format="int8"))


def test_blocks_that_cannot_be_are_one_line(tmp_path):
    folder = write(tmp_path, "deepseek", quantization_config={"quant_method": "fp8", "weight_block_size": [0, 128]})

    with pytest.raises(ModelError, match=r"small: cannot be loaded: scales for blocks of 0 x 128 numbers\Z"):
        load_model(folder / "small", LoadOptions())


@pytest.mark.parametrize(("weights", "sampler"), matrix(["float", "int8", "fp8"], ["greedy", "T1"]))
def test_drafts_change_nothing(weights, sampler, published):
    """In exact mode, in the dtype of the config."""

    def turns(drafter: Drafter) -> list[list[int]]:
        return two_turns(loaded(published / "small", None, weights, exact=True), drafter, SAMPLERS[sampler], STOPS)

    assert turns(Chaos(3)) == turns(Drafter())


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A random Llama model of 110 MB in the layout of fbgemm."""
    here = tmp_path_factory.mktemp("large")
    wide, deep = SIZES["hidden_size"], SIZES["intermediate_size"]
    shapes = {f"self_attn.{part}_proj": (wide, wide) for part in "qkvo"}
    shapes |= {"mlp.gate_proj": (deep, wide), "mlp.up_proj": (deep, wide), "mlp.down_proj": (wide, deep)}
    table = torch.empty(SIZES["vocab_size"], wide).uniform_(-0.1, 0.1).bfloat16()
    tensors = {"model.embed_tokens.weight": table, "model.norm.weight": torch.ones(wide).bfloat16()}
    for at in (f"model.layers.{layer}" for layer in range(SIZES["num_hidden_layers"])):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{norm}.weight"] = torch.ones(wide).bfloat16()
        for name, shape in shapes.items():
            tensors[f"{at}.{name}.weight"] = torch.empty(shape).uniform_(-448, 448).to(torch.float8_e4m3fn)
            tensors[f"{at}.{name}.weight_scale"] = torch.full((shape[0], 1), 1e-4)
    save_file(tensors, here / "model.safetensors")
    config = SIZES | {"model_type": "llama", "num_attention_heads": 16, "tie_word_embeddings": True}
    (here / "config.json").write_text(
        json.dumps(config | {"quantization_config": LAYOUTS["fbgemm"].quantization_config})
    )
    return here


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel does not say what the peak was")
@pytest.mark.parametrize("weights", ["float", "int8", "fp8"])
def test_peak_memory_is_little_above_the_memory_of_the_weights(weights, large):
    final, peak = final_and_peak(large, weights)

    assert peak <= MOST * final
