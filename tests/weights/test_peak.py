"""Loading takes little more memory than the weights: there is never a second copy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specchat.weights.gguf.gguf_preparation import prepared_gguf
from tests.plugins.conftest import write_metadata
from tools import cold_start

HYBRIDS = Path("plugins/specchat-hybrids").resolve()

NETWORK_SIZES = {
    "vocab_size": 16384, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
    "num_attention_heads": 16, "tie_word_embeddings": False,
}  # fmt: skip
GGUF_SIZES = {
    "LAYERS": 9, "WIDTH": 1024, "MLP_WIDTH": 2816, "HEADS": 16, "KV_HEADS": 16, "HEAD_SIZE": 64, "VOCABULARY": 32768,
}  # fmt: skip
SIZES = {"vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 5}
MOST = 1.3  # times the final size

PROGRAM = """
import sys
from pathlib import Path
import torch
from specchat.forward.linear.linear import WeightSource
from specchat.forward.linear.quant_linear import quant_linear
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions

def mebibytes(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024

torch.set_num_threads(1)
folder, weights = sys.argv[1:]
ones = torch.ones(64, 64, dtype=torch.bfloat16)
quant_linear(WeightSource.from_tensor(ones), weights)(ones[:1])  # the first call allocates buffers
before = mebibytes("VmRSS:")
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
model = load_model(Path(folder), LoadOptions(dtype="bfloat16", quant_format=weights))
print(model.bytes / 2**20, mebibytes("VmHWM:") - before, mebibytes("VmRSS:") - before)
"""

# Pages of the mapped file are not counted: the system takes them back when another program needs memory.
NETWORK_PROGRAM = """
import sys
from pathlib import Path
from threading import Event, Thread
import torch
from transformers.models.gpt_neox import modeling_gpt_neox
from specchat.forward.linear.linear import WeightSource
from specchat.forward.linear.quant_linear import quant_linear
from specchat.weights import transformers_files
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions

def own_mebibytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024

def watch():
    while not is_loaded.wait(0.005):
        samples.append(own_mebibytes())

torch.set_num_threads(1)
folder, weights = sys.argv[1:]
ones = torch.ones(64, 64, dtype=torch.bfloat16)
quant_linear(WeightSource.from_tensor(ones), weights)(ones[:1])
before, samples, is_loaded = own_mebibytes(), [], Event()
thread = Thread(target=watch)
thread.start()
model = load_model(Path(folder), LoadOptions(dtype="bfloat16", quant_format=weights))
is_loaded.set()
thread.join()
print(model.bytes / 2**20, max(samples) - before, own_mebibytes() - before)
"""


@pytest.fixture(scope="module")
def network_folder(tmp_path_factory):
    """A random network of 160 MB that transformers computes."""
    from transformers import AutoModelForCausalLM, GPTNeoXConfig

    path = tmp_path_factory.mktemp("network")
    config = GPTNeoXConfig(**NETWORK_SIZES)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama-like model of 210 MB with tied embeddings."""
    path = tmp_path_factory.mktemp("large")
    wide, deep = SIZES["hidden_size"], SIZES["intermediate_size"]
    shapes = {"model.embed_tokens": (SIZES["vocab_size"], wide), "model.norm": (wide,)}
    for layer in range(SIZES["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {f"{prefix}.{name}": (wide,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{prefix}.self_attn.{part}_proj": (wide, wide) for part in "qkvo"}
        shapes |= {f"{prefix}.mlp.{part}_proj": (deep, wide) for part in ("gate", "up")}
        shapes[f"{prefix}.mlp.down_proj"] = (wide, deep)
    tensors = {f"{name}.weight": torch.empty(shape).uniform_(-0.1, 0.1).bfloat16() for name, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors")
    config = SIZES | {"model_type": "llama", "num_attention_heads": 16, "tie_word_embeddings": True}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def gguf_folder(tmp_path_factory):
    """What was made from a random file of 80 MB with tied embeddings."""
    path = tmp_path_factory.mktemp("gguf")
    with pytest.MonkeyPatch.context() as patch:
        for name, size in GGUF_SIZES.items():
            patch.setattr(cold_start, name, size)
        cold_start.write_random_gguf(path / "model.gguf", "Q4_K")
        patch.setenv("SPECCHAT_CACHE", str(path / "cache"))
        return prepared_gguf(path / "model.gguf")


def final_and_peak(folder, weights, program=PROGRAM, environment=None):
    """MiB of the loaded weights, and the peak while loading, in a subprocess."""
    command = [sys.executable, "-c", program, str(folder), weights]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    final, peak, stays = map(float, run.stdout.split())
    print(f"{weights}: {final:.0f} MiB of weights, {peak:.0f} at the peak, {stays:.0f} stay")
    return final, peak


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel does not report the peak")
@pytest.mark.full
@pytest.mark.parametrize("weights", ["float", "int8", "nf4"])
def test_the_peak_is_little_above_the_final_size(folder, weights):
    final, peak = final_and_peak(folder, weights)

    assert peak <= MOST * final


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not report the peak")
@pytest.mark.full
@pytest.mark.parametrize("weights", ["float", "int8", "nf4"])
def test_so_is_that_of_a_network_of_transformers_once_its_decoding_form_is_known(
    network_folder, weights, tmp_path, monkeypatch
):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    write_metadata(HYBRIDS, tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(HYBRIDS), *sys.path))}
    environment.pop("SPECCHAT_LOAD_PLUGINS", None)
    final_and_peak(network_folder, weights, NETWORK_PROGRAM, environment)  # computes in float32 to find the form

    final, peak = final_and_peak(network_folder, weights, NETWORK_PROGRAM, environment)

    assert peak <= MOST * final


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel does not report the peak")
@pytest.mark.usefixtures("native_library")
@pytest.mark.full
@pytest.mark.parametrize("weights", ["gguf", "float", "int8"])
def test_so_is_that_of_a_gguf_file_of_which_no_other_page_stays_in_memory(gguf_folder, weights):
    final, peak = final_and_peak(gguf_folder, weights)

    assert peak <= MOST * final
    assert not list(gguf_folder.rglob("*.safetensors"))
