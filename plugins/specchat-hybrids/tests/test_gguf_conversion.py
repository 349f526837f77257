"""All weights of a GGUF file become a folder that computes as the network that was written, when it is asked for."""

import json
import tracemalloc
from errno import ENOSPC
from math import log
from types import SimpleNamespace

import numpy
import pytest
import torch
from safetensors.torch import load_file

from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.weights.gguf.gguf_preparation import no_report, prepared_gguf
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids import gguf_conversion
from specchat_hybrids.gguf_conversion import safetensors_folder
from tests.each_row import each_row
from tests.gguf_models import CONVERTIBLE, FAMILIES, long_rope_gguf, network, write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def converted(path, report=no_report):
    return safetensors_folder(prepared_gguf(path), report)


def loaded(folder):
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model):
    with torch.inference_mode():
        return model(torch.arange(40)[None]).logits


@each_row("storage", ["F32", "F16", "BF16"])
@each_row("family", FAMILIES, shares=3)
def test_the_converted_weights_are_those_of_the_network(tmp_path, family, storage):
    model = network(family)

    folder = converted(write_gguf(tmp_path / "model.gguf", family, storage=storage))

    tensors = load_file(folder / "model.safetensors")
    expected = model.state_dict()
    assert {name for name in expected if name != "lm_head.weight"} == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(
            tensor, expected[name].half().bfloat16() if storage == "F16" else expected[name].bfloat16()
        ), name


@pytest.mark.full
@each_row(
    "family, tied",
    [
        *((family, True) for family in (*FAMILIES, *CONVERTIBLE)),
        ("llama", False),
        ("qwen3", False),
        ("phi3", False),
    ],
)
def test_the_converted_folder_computes_the_same_logits(tmp_path, family, tied):
    model = network(family, tied)

    folder = converted(write_gguf(tmp_path / "model.gguf", family, model=model))

    assert torch.equal(logits(loaded(folder)), logits(model))


def test_experts_with_biases_are_not_converted_in_part(tmp_path):
    with pytest.raises(ModelError, match="experts with biases cannot be converted"):
        converted(write_gguf(tmp_path / "model.gguf", "gpt-oss"))


def test_progress_is_reported_until_all_bytes_are_written(tmp_path):
    reports = []

    folder = converted(write_gguf(tmp_path / "model.gguf"), lambda *report: reports.append(report))

    what, done, total = reports[-1]
    assert what == "converting model.gguf"
    assert done == total == sum(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())


def test_large_models_are_written_as_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_conversion, "SHARD_BYTES", 60_000)
    model = network("llama")

    folder = converted(write_gguf(tmp_path / "model.gguf", model=model))

    assert len(list(folder.glob("model-*-of-*.safetensors"))) == 3
    assert torch.equal(logits(loaded(folder)), logits(model))


def test_biases_of_attention_are_permuted_with_their_rows(tmp_path):
    model = network("llama", attention_bias=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.copy_(torch.randn_like(parameter).bfloat16())

    folder = converted(write_gguf(tmp_path / "model.gguf", model=model))

    assert torch.equal(logits(loaded(folder)), logits(model))


def llama3_rope_factors(rope, head_size):
    """As llama.cpp's converter computes the tensor rope_freqs."""
    inv_freq = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_size, 2).float() / head_size)
    scaled = Rope.from_config({"rope_parameters": rope}).inv_freq(head_size)
    return (inv_freq / scaled).numpy()


@each_row("factor", [8.0, 32.0])
def test_rope_factors_of_llama_3_become_the_rule_of_its_config(tmp_path, factor):
    rule = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, **rule}
    path = write_gguf(
        tmp_path / "model.gguf",
        metadata={"llama.rope.freq_base": 500000.0},
        tensors={"rope_freqs.weight": llama3_rope_factors(rope, 16)},
    )

    assert json.loads((converted(path) / "config.json").read_text())["rope_parameters"] == rope


def test_rope_factors_by_no_known_rule_are_refused(tmp_path):
    factors = numpy.linspace(1, 8, 8, dtype=numpy.float32)
    path = write_gguf(tmp_path / "model.gguf", tensors={"rope_freqs.weight": factors})

    with pytest.raises(ModelError, match=r"its rope_freqs\.weight follow no known rule"):
        converted(path)


SCALINGS = {
    "linear": ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    "yarn": (
        {"type": "yarn", "factor": 4.0, "original_context_length": 128},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    ),
    "sharpened yarn": (
        {"type": "yarn", "factor": 4.0, "original_context_length": 128, "attn_factor": 0.5},
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            "attention_factor": 0.5 * (1 + 0.1 * log(4)),
        },
    ),
    "none": ({"type": "none", "factor": 1.0}, {"rope_type": "default"}),
}


@each_row("scaling", SCALINGS)
def test_rope_scaling_is_kept(tmp_path, scaling):
    stored, expected = SCALINGS[scaling]
    entries = {f"qwen2.rope.scaling.{key}": value for key, value in stored.items()}

    folder = converted(write_gguf(tmp_path / "model.gguf", "qwen2", metadata=entries))

    rope = json.loads((folder / "config.json").read_text())["rope_parameters"]
    assert rope == {"rope_theta": 10000.0, **expected}
    assert logits(loaded(folder)).isfinite().all()


def test_the_long_and_short_factors_of_phi_3_are_kept(tmp_path):
    short, long = ([1.0 + step / 8 * index for index in range(8)] for step in (1, 4))
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": long}
    model = network("phi3", rope_parameters=rope, original_max_position_embeddings=24, max_position_embeddings=512)
    factors = {f"rope_factors_{name}.weight": numpy.float32(each) for name, each in (("short", short), ("long", long))}
    path = write_gguf(
        tmp_path / "model.gguf", "phi3", model=model, tensors=factors,
        metadata={"phi3.rope.scaling.original_context_length": 24},
    )  # fmt: skip

    assert torch.equal(logits(loaded(converted(path))), logits(model))


def test_only_the_full_attention_of_gemma_3_is_scaled(tmp_path):
    scaled = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0}
    rope = {"full_attention": scaled, "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}}
    model = network("gemma3", rope_parameters=rope)
    entries = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}

    folder = converted(write_gguf(tmp_path / "model.gguf", "gemma3", model=model, metadata=entries))

    assert torch.equal(logits(loaded(folder)), logits(model))


def test_a_gemma_layer_has_a_sliding_window_where_the_file_lists_it(tmp_path):
    listed = [True, False, True, True, False, True, False]
    path = write_gguf(tmp_path / "model.gguf", "gemma3", metadata={"gemma3.attention.sliding_window_pattern": listed})

    layer_types = json.loads((converted(path) / "config.json").read_text())["layer_types"]
    assert [each == "sliding_attention" for each in layer_types] == listed


def test_it_is_made_once_and_other_folders_stay_as_they_are(tmp_path):
    folder = converted(write_gguf(tmp_path / "model.gguf"))

    assert folder == converted(tmp_path / "model.gguf") == safetensors_folder(folder)
    assert safetensors_folder(tmp_path) == tmp_path


def leftovers(path):
    return [each.name for each in prepared_gguf(path).glob("bf16*") if each.suffix != ".lock"]


@each_row("error", [KeyboardInterrupt(), ModelError("stopped")])
def test_an_interrupted_conversion_leaves_nothing(tmp_path, error):
    def interrupt(_what, _done, _total):
        raise error

    path = write_gguf(tmp_path / "model.gguf")
    with pytest.raises(type(error)):
        converted(path, interrupt)

    assert not leftovers(path)
    assert converted(path).is_dir()


def test_a_full_disk_is_a_clear_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(ENOSPC, "No space left on device")

    path = write_gguf(tmp_path / "model.gguf")
    monkeypatch.setattr(gguf_conversion.os, "fsync", full)
    with pytest.raises(ModelError, match=r"cannot be converted in .*: No space left on device"):
        converted(path)
    assert not leftovers(path)

    monkeypatch.setattr(gguf_conversion.shutil, "disk_usage", lambda _path: SimpleNamespace(free=2**20))
    with pytest.raises(ModelError, match=r"it takes 0\.0 GB in .*, and 0\.0 GB are free; free some space"):
        converted(path)
    assert not leftovers(path)


def test_memory_holds_a_few_rows_at_a_time(tmp_path):
    model = network("llama", vocab_size=24_000, hidden_size=256, num_attention_heads=16, num_key_value_heads=16)
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0", model=model)
    converted(write_gguf(tmp_path / "other.gguf"))  # imports
    tracemalloc.start()
    try:
        folder = converted(path)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1.3 * (folder / "model.safetensors").stat().st_size


def test_a_family_that_transformers_computes_is_converted_when_it_is_loaded(tmp_path):
    from specchat.forward.transformers.transformers_model import TransformersModel

    folder, reports = prepared_gguf(long_rope_gguf(tmp_path / "model.gguf")), []

    model = load_model(folder, LoadOptions(dtype="float32", device="cpu"), lambda *report: reports.append(report))

    assert isinstance(model, TransformersModel)
    assert {"converting model.gguf"} == {what for what, _done, _total in reports}
    assert (folder / "bf16" / "model.safetensors").is_file()
