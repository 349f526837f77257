"""A GGUF file becomes a folder that computes as the network that was written."""

import json
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from errno import ENOSPC
from threading import Event
from types import SimpleNamespace

import numpy
import pytest
import torch
import transformers
from safetensors.torch import load_file

from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.models import gguf_conversion, gguf_weights
from specchat.models.gguf_conversion import converted_gguf, find_converted
from tests.gguf_models import FAMILIES, network, write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def loaded(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model):
    with torch.inference_mode():
        return model(torch.arange(40)[None]).logits


@pytest.mark.parametrize("storage", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_converted_weights_are_those_of_the_network(tmp_path, family, storage):
    model = network(family)

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", family, storage=storage))

    converted = load_file(folder / "model.safetensors")
    expected = model.state_dict()
    assert {name for name in expected if name != "lm_head.weight"} == set(converted)
    for name, tensor in converted.items():
        assert torch.equal(
            tensor, expected[name].half().bfloat16() if storage == "F16" else expected[name].bfloat16()
        ), name


@pytest.mark.parametrize(
    ("family", "tied"), [*((family, True) for family in FAMILIES), ("llama", False), ("qwen3", False), ("phi3", False)]
)
def test_the_converted_folder_computes_the_same_logits(tmp_path, family, tied):
    model = network(family, tied)

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", family, model=model))

    assert torch.equal(logits(loaded(folder)), logits(model))


def test_a_second_call_finds_the_folder_and_a_changed_file_makes_another(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")

    first = converted_gguf(path)

    assert find_converted(path) == converted_gguf(path) == first
    write_gguf(path, "qwen2")
    assert find_converted(path) is None
    assert converted_gguf(path) != first
    assert not first.exists()


def test_progress_is_reported_until_all_bytes_are_written(tmp_path):
    reports = []

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf"), lambda *report: reports.append(report))

    what, done, total = reports[-1]
    assert what == "converting model.gguf"
    assert done == total == sum(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())


def test_large_models_are_written_as_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_weights, "SHARD_BYTES", 60_000)
    model = network("llama")

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", model=model))

    assert len(list(folder.glob("model-*-of-*.safetensors"))) == 3
    assert torch.equal(logits(loaded(folder)), logits(model))


def test_biases_of_attention_are_permuted_with_their_rows(tmp_path):
    model = network("llama", attention_bias=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.copy_(torch.randn_like(parameter).bfloat16())

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", model=model))

    assert torch.equal(logits(loaded(folder)), logits(model))


def llama3_rope_factors(rope, head_size):
    """As llama.cpp's converter computes the tensor rope_freqs."""
    inv_freq = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_size, 2).float() / head_size)
    scaled = Rope.from_config({"rope_parameters": rope}).inv_freq(head_size)
    return (inv_freq / scaled).numpy()


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_rope_factors_of_llama_3_become_the_rule_of_its_config(tmp_path, factor):
    rule = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, **rule}
    path = write_gguf(
        tmp_path / "model.gguf",
        metadata={"llama.rope.freq_base": 500000.0},
        tensors={"rope_freqs.weight": llama3_rope_factors(rope, 16)},
    )

    assert json.loads((converted_gguf(path) / "config.json").read_text())["rope_parameters"] == rope


def test_rope_factors_by_no_known_rule_are_refused(tmp_path):
    factors = numpy.linspace(1, 8, 8, dtype=numpy.float32)
    path = write_gguf(tmp_path / "model.gguf", tensors={"rope_freqs.weight": factors})

    with pytest.raises(ModelError, match=r"its rope_freqs\.weight follow no known rule"):
        converted_gguf(path)


SCALINGS = {
    "linear": ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    "yarn": (
        {"type": "yarn", "factor": 4.0, "original_context_length": 128},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    ),
    "none": ({"type": "none", "factor": 1.0}, {"rope_type": "default"}),
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_rope_scaling_is_kept(tmp_path, scaling):
    stored, expected = SCALINGS[scaling]
    entries = {f"qwen2.rope.scaling.{key}": value for key, value in stored.items()}

    folder = converted_gguf(write_gguf(tmp_path / "model.gguf", "qwen2", metadata=entries))

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

    assert torch.equal(logits(loaded(converted_gguf(path))), logits(model))


def test_a_gemma_layer_has_a_sliding_window_where_the_file_lists_it(tmp_path):
    listed = [True, False, True, True, False, True, False]
    path = write_gguf(tmp_path / "model.gguf", "gemma3", metadata={"gemma3.attention.sliding_window_pattern": listed})

    layer_types = json.loads((converted_gguf(path) / "config.json").read_text())["layer_types"]
    assert [each == "sliding_attention" for each in layer_types] == listed


def leftovers(tmp_path):
    return [path.name for path in (tmp_path / "cache" / "gguf").glob("*") if path.suffix != ".lock"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ModelError("stopped")])
def test_an_interrupted_conversion_leaves_nothing(tmp_path, error):
    def interrupt(_what, _done, _total):
        raise error

    path = write_gguf(tmp_path / "model.gguf")
    with pytest.raises(type(error)):
        converted_gguf(path, interrupt)

    assert not leftovers(tmp_path)
    assert converted_gguf(path).is_dir()


def test_a_full_disk_is_a_clear_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(ENOSPC, "No space left on device")

    path = write_gguf(tmp_path / "model.gguf")
    monkeypatch.setattr(gguf_weights.os, "fsync", full)
    with pytest.raises(ModelError, match=r"cannot be converted in .*: No space left on device"):
        converted_gguf(path)
    assert not leftovers(tmp_path)

    monkeypatch.setattr(gguf_conversion.shutil, "disk_usage", lambda _path: SimpleNamespace(free=2**20))
    with pytest.raises(ModelError, match=r"it takes 0\.0 GB in .*, and 0\.0 GB are free; free some space"):
        converted_gguf(path)
    assert not leftovers(tmp_path)


def test_what_a_killed_process_left_is_replaced(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    folder = converted_gguf(path)
    (folder / "model.safetensors").unlink()
    folder.rename(folder.with_name(f"{folder.name}.partial"))

    assert converted_gguf(path) == folder
    assert (folder / "model.safetensors").exists()
    assert leftovers(tmp_path) == [folder.name]


def test_a_second_process_waits_and_says_so(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    is_converting, is_waiting, waits = Event(), Event(), []

    def hold(_what, _done, _total):
        is_converting.set()
        assert is_waiting.wait(30)

    def note(what, _done, _total):
        waits.append(what)
        is_waiting.set()

    with ThreadPoolExecutor() as pool:
        first = pool.submit(converted_gguf, path, hold)
        assert is_converting.wait(30)
        second = pool.submit(converted_gguf, path, note)

    assert first.result() == second.result()
    assert waits == ["waiting for another process: model.gguf"]


def test_converting_imports_no_torch(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    code = (
        "import sys; from pathlib import Path; from specchat.models.gguf_conversion import converted_gguf;"
        f"converted_gguf(Path({str(path)!r})); print('torch' in sys.modules or 'transformers' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_memory_holds_a_few_rows_at_a_time(tmp_path):
    model = network("llama", vocab_size=24_000, hidden_size=256, num_attention_heads=16, num_key_value_heads=16)
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0", model=model)
    converted_gguf(write_gguf(tmp_path / "other.gguf"))  # imports
    tracemalloc.start()
    try:
        folder = converted_gguf(path)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1.3 * (folder / "model.safetensors").stat().st_size
