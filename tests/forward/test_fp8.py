"""Checkpoints that were published in eight bits run in our own passes, as what their numbers stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.drafter import Drafter
from specchat.errors import ModelError
from specchat.forward import linear
from specchat.forward.batch import BatchLimits
from specchat.forward.linear import QUANT_FORMATS
from specchat.forward.llama import LlamaModel
from specchat.models.fp8_checkpoints import Fp8TensorFiles
from specchat.models.llama_weights import config_dtype, is_llama_like, load_llama
from specchat.models.load import LoadOptions, load_model
from specchat.models.tensor_files import TensorFiles
from tests.cover import matrix
from tests.engine.test_lossless import SAMPLERS, STOPS, two_turns
from tests.models.eight_bits import LAYOUTS, write
from tests.models.test_peak import MOST, SIZES, final_and_peak
from tests.tiny import Chaos

CPU = torch.device("cpu")
TEXT = [5, 9, 17, 33, 60, 2, 2, 81]
FAMILIES = ["llama", "mistral", "qwen2", "qwen3"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder as DeepSeek's way publishes it, and its floats beside it."""
    return write(tmp_path_factory.mktemp("published"), "deepseek")


def logits_of(model: LlamaModel) -> torch.Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64), torch.inference_mode():
        return model.prefill(TEXT, cache).logits.float().clone()


def loaded(folder: Path, dtype: torch.dtype | None = torch.float32, weights: str = "float", **how) -> LlamaModel:
    return load_llama(folder, dtype, CPU, None, BatchLimits(prefill_chunk=16, max_rows=32, **how), quant_format=weights)


@pytest.mark.parametrize(("layout", "family"), matrix(list(LAYOUTS), FAMILIES))
def test_a_published_layout_says_what_its_numbers_stand_for(layout, family, tmp_path):
    folder = write(tmp_path, layout, family)
    assert is_llama_like(json.loads((folder / "small" / "config.json").read_text()))

    said, meant = (logits_of(loaded(folder / name)) for name in ("small", "float"))

    assert torch.equal(said, meant)
    assert float(meant.std()) > 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weights", QUANT_FORMATS)
def test_it_can_be_held_in_every_way(weights, dtype, published):
    small, same = (loaded(published / name, dtype, weights) for name in ("small", "float"))

    assert torch.equal(logits_of(small), logits_of(same))
    assert small.bytes == same.bytes


def test_another_quantisation_is_left_to_transformers(published):
    config = json.loads((published / "small" / "config.json").read_text())

    for other in ({"quant_method": "gptq"}, {"quant_method": "compressed-tensors", "format": "pack-quantized"}, "fp8"):
        assert not is_llama_like(config | {"quantization_config": other})


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ({"dtype": "bfloat16"}, torch.bfloat16), ({"torch_dtype": "float16"}, torch.float16),
        ({"torch_dtype": "torch.bfloat16"}, torch.bfloat16), ({"dtype": "float32"}, torch.float32),
        ({"dtype": "float8_e4m3fn"}, torch.bfloat16), ({"dtype": None}, torch.bfloat16), ({}, torch.bfloat16),
    ],
    ids=str,
)  # fmt: skip
def test_the_dtype_is_what_the_config_names_and_never_eight_bits(named, meant):
    assert config_dtype(named) == meant


@pytest.mark.parametrize(("dtype", "changes"), [("bfloat16", {}), ("float32", {"dtype": "float32"})])
def test_weights_that_nobody_asks_another_dtype_for_get_that_of_the_config(dtype, changes, tmp_path):
    model = loaded(write(tmp_path, "outputs", "llama", **changes) / "small", dtype=None)

    layer = model.weights.layers[0]
    assert {model.weights.embedding.dtype, layer.post_attention_layernorm.dtype, layer.qkv_proj.weight.dtype} == {
        getattr(torch, dtype)
    }
    assert model.pool.layout.dtype == getattr(torch, dtype)


def test_floats_without_scales_keep_what_they_were_saved_in(published):
    assert loaded(published / "float", dtype=None).weights.embedding.dtype == torch.float32


@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", "16, twice"), ("float32", "32, four times")])
def test_what_floats_take_is_said_once_with_a_remedy(dtype, times, published, capsys):
    load_model(published / "small", LoadOptions(dtype=dtype))

    line = f"small: its 8-bit weights become floats of {times} as large; --weights int8 keeps 8\n"
    assert capsys.readouterr().err.count(line) == 1


def test_nothing_is_said_of_weights_that_stay_small_or_never_were(published, capsys, monkeypatch):
    monkeypatch.setattr("specchat.models.load.shortfall", lambda *_given: "")

    load_model(published / "small", LoadOptions(dtype="bfloat16", quant_format="fp8"))
    load_model(published / "float", LoadOptions(dtype="bfloat16"))

    assert capsys.readouterr().err == ""


def test_weights_are_made_smaller_slab_by_slab(published, monkeypatch):
    whole, slabs = set[str](), dict[str, list[int]]()
    stored, rows = TensorFiles._read_stored, Fp8TensorFiles.read_rows

    def watched(self, name):
        whole.add(name)
        return stored(self, name)

    def watched_rows(self, name, first, last):
        slabs.setdefault(name, []).append(last - first)
        return rows(self, name, first, last)

    monkeypatch.setattr(TensorFiles, "_stored", watched)
    monkeypatch.setattr(Fp8TensorFiles, "rows", watched_rows)
    monkeypatch.setattr(linear, "SLAB_NUMBERS", 32 * 160)

    loaded(published / "small", torch.bfloat16, "fp8")

    assert not {name for name in whole if name.endswith("_proj.weight")}
    assert max(max(heights) for heights in slabs.values()) == 32
    assert len(slabs["model.layers.1.mlp.down_proj.weight"]) == 160 // 32


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
def test_guesses_change_nothing(weights, sampler, published):
    """In exact mode, in the dtype that the folder names."""

    def turns(drafter: Drafter) -> list[list[int]]:
        return two_turns(loaded(published / "small", None, weights, exact=True), drafter, SAMPLERS[sampler], STOPS)

    assert turns(Chaos(3)) == turns(Drafter())


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A random model of 110 MB with the shape of a Llama, as fbgemm publishes one."""
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
    (here / "config.json").write_text(json.dumps(config | {"quantization_config": LAYOUTS["fbgemm"].says}))
    return here


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel does not say what the peak was")
@pytest.mark.parametrize("weights", ["float", "int8", "fp8"])
def test_the_peak_is_little_above_what_stays(weights, large):
    final, peak = final_and_peak(large, weights)

    assert peak <= MOST * final
