"""The names of GGUF files: paths, folders with one file, models of Ollama."""

import json
import shutil
from hashlib import sha256

import pytest

from specchat.errors import ModelError
from specchat.hub.find_models import find_local_model, find_model
from specchat.weights.context_window import trained_context_window
from specchat.weights.gguf.gguf_sources import gguf_models, local_gguf, ollama_manifests
from tests.gguf_models import write_gguf


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))


def in_ollama(tmp_path, name, tag="latest", content=b"GGUF", namespace="library"):
    """Store a blob as Ollama does, and return its path."""
    digest = sha256(content).hexdigest()
    blob = tmp_path / "ollama" / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    manifest = tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / namespace / name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'0' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def test_a_path_and_a_folder_with_one_file_name_it(tmp_path):
    path = write_gguf(tmp_path / "models" / "tiny.gguf")
    (tmp_path / "models" / "mmproj-tiny.gguf").write_bytes(b"GGUF")

    assert local_gguf(str(path)) == path
    assert local_gguf(str(tmp_path / "models")) == path
    assert gguf_models(tmp_path / "models") == {"tiny": path}


def test_a_folder_with_two_models_asks_for_one(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")

    with pytest.raises(ModelError, match=r"holds 2 models; name one of the files: a\.gguf, b\.gguf"):
        local_gguf(str(tmp_path))


def test_other_sources_name_no_gguf_file(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    assert local_gguf(str(tmp_path)) is None
    assert local_gguf("embedded") is None
    assert local_gguf("org/name") is None


def test_a_model_of_ollama_is_named_as_ollama_names_it(tmp_path):
    latest, small = in_ollama(tmp_path, "llama3.2"), in_ollama(tmp_path, "llama3.2", "1b", b"GGUF 1b")
    other = in_ollama(tmp_path, "own", namespace="someone", content=b"GGUF own")

    assert [each.name for each in ollama_manifests()] == ["llama3.2:1b", "llama3.2:latest", "someone/own:latest"]
    assert local_gguf("ollama:llama3.2") == latest
    assert local_gguf("ollama:llama3.2:1b") == small
    assert local_gguf("ollama:someone/own") == other


def test_a_model_that_ollama_lacks_and_a_blob_that_is_gone_say_so(tmp_path):
    in_ollama(tmp_path, "llama3.2").unlink()

    with pytest.raises(
        ModelError, match=r"Ollama has no such model here; it has llama3\.2:latest; run 'ollama pull qwen3'"
    ):
        local_gguf("ollama:qwen3")
    with pytest.raises(ModelError, match=r"its file .*sha256-.* is gone; run 'ollama pull llama3\.2:latest'"):
        local_gguf("ollama:llama3.2")


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", "{}", '{"layers": 3}', '{"layers": [{}]}', '{"layers": []}',
     '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../etc/passwd"}]}'],
)  # fmt: skip
def test_a_hostile_manifest_is_one_clear_line(tmp_path, manifest):
    in_ollama(tmp_path, "bad")
    next((tmp_path / "ollama" / "manifests").rglob("latest")).write_text(manifest)

    with pytest.raises(ModelError, match=r"not a manifest of Ollama|names no model"):
        local_gguf("ollama:bad")


def test_a_gguf_file_is_a_model_once_it_is_converted(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf")
    blob = in_ollama(tmp_path, "tiny", content=path.read_bytes())
    assert find_local_model(str(path)) is None
    reports = []

    folder = find_model(str(path), report=lambda *report: reports.append(report))

    assert find_local_model(str(path)) == folder
    assert reports
    assert {file.name for file in find_model("ollama:tiny").iterdir()} == {file.name for file in folder.iterdir()}
    assert blob.exists()
    shutil.rmtree(folder)
    assert find_local_model(str(path)) is None


def test_the_context_length_of_a_gguf_file_is_read_from_it(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")

    assert trained_context_window(str(write_gguf(tmp_path / "tiny.gguf"))) == 512
    assert trained_context_window(str(tmp_path / "bad.gguf")) is None
