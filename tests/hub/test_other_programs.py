"""Models that Ollama, LM Studio and the hub's cache hold, and what is said about each."""

import json

import pytest

from specchat.devices import CPU
from specchat.errors import ModelError
from specchat.hub.local_models import local_models, locate_model, models_of_other_programs
from specchat.hub.memory_plan import fitting_format
from specchat.hub.safetensors_headers import read_architecture
from specchat.weights.gguf.gguf_sources import local_gguf
from tests.gguf_models import write_gguf
from tests.tiny import saved


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    return tmp_path


def test_nothing_is_found_where_nothing_is(home):
    assert not list(models_of_other_programs())


def test_gguf_files_of_lm_studio_and_the_hub_have_names_that_the_target_takes(home):
    paths = [
        home / ".lmstudio/models/someone/Tiny-GGUF/tiny-Q8_0.gguf",
        home / ".cache/lm-studio/models/someone/Old-GGUF/old.gguf",
        home / "hub/models--someone--Tiny-GGUF/snapshots/abc/tiny.gguf",
    ]
    for path in paths:
        path.parent.mkdir(parents=True)
        write_gguf(path, storage="Q8_0")

    models = list(models_of_other_programs())

    names = ["lmstudio:someone/Old-GGUF:old", "lmstudio:someone/Tiny-GGUF:Q8_0", "someone/Tiny-GGUF:tiny"]
    assert [model.id for model in models] == names
    assert [local_gguf(name) for name in names] == [paths[1], paths[0], paths[2]]
    details = models[1].details()
    assert (details.quantization, details.bytes) == ("Q8_0", paths[0].stat().st_size)
    assert details.architecture == locate_model(models[1].id).architecture
    assert not any(model.id.startswith("someone/") for model in local_models())


def test_a_model_of_lm_studio_may_be_named_without_its_publisher_where_that_is_unique(home):
    for name in ("someone/Tiny/tiny-Q4_0", "someone/Tiny/tiny-Q8_0", "other/Small/small", "someone/Small/small"):
        path = home / f".lmstudio/models/{name}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")

    assert local_gguf("lmstudio:tiny:q8_0") == home / ".lmstudio/models/someone/Tiny/tiny-Q8_0.gguf"
    assert local_gguf("lmstudio:other/small") == home / ".lmstudio/models/other/Small/small.gguf"
    with pytest.raises(ModelError, match=r"holds 2 models; name one as lmstudio:tiny:Q4_0: Q4_0, Q8_0"):
        local_gguf("lmstudio:tiny")
    for name in ("lmstudio:small", "lmstudio:large"):
        with pytest.raises(
            ModelError, match=f"{name}: LM Studio has no such GGUF model here, or several; it has other/"
        ):
            local_gguf(name)


def test_a_moved_folder_of_lm_studio_is_followed(home):
    path = home / "elsewhere/models/someone/Tiny/tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    (home / ".lmstudio-home-pointer").write_text(f"{home}/elsewhere\n")

    assert [model.path for model in models_of_other_programs()] == [path]


def test_mlx_is_named_as_unsupported_and_a_blob_that_is_gone_too(home):
    mlx = home / ".lmstudio/models/mlx-community/Tiny-4bit"
    mlx.mkdir(parents=True)
    (mlx / "config.json").write_text(json.dumps({"quantization": {"group_size": 64, "bits": 4}}))
    manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/tiny/latest"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{'a' * 64}"}
    manifest.write_text(json.dumps({"layers": [layer]}))

    ollama, folder = models_of_other_programs()

    assert ollama.id == "ollama:tiny:latest"
    assert "is gone; run 'ollama pull tiny:latest'" in ollama.details().problem
    assert folder.details().problem.startswith("MLX is not supported")


def test_a_gguf_file_has_the_size_of_the_model_that_it_becomes(home):
    path = write_gguf(home / "tiny.gguf", storage="Q8_0")

    architecture = read_architecture(path)

    assert (architecture.family, architecture.layers, architecture.vocab_size) == ("llama", 2, 288)
    assert architecture.stored_bytes == path.stat().st_size
    with pytest.raises(ModelError, match="damaged"):
        locate_model(str(truncated(path)))


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])
    return path


def test_the_most_precise_format_that_fits_is_named():
    architecture = read_architecture(saved("llama"))

    assert fitting_format(architecture, 2**40, 8192, kind=CPU) == "bf16"
    assert fitting_format(architecture, 2**20, 8192, kind=CPU) is None
