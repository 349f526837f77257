"""Names of models on the command line, as the engine process gets them."""

import json

import pytest

from specchat.cli.options import KEY_BY_FLAG, parameter_name, resolve_profile
from specchat.errors import ModelError

NO_OPTIONS = {parameter_name(flag): None for flag in KEY_BY_FLAG} | {"profile": "chat", "exact": None}


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def target_for(name):
    return resolve_profile(NO_OPTIONS | {"target": name}).models.target


def test_a_relative_path_of_a_gguf_file_becomes_absolute(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    assert target_for("model.gguf") == str(tmp_path / "model.gguf")


def test_a_model_of_ollama_keeps_its_name_unless_its_folder_is_set_here(tmp_path, monkeypatch):
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    assert target_for("ollama:tiny") == "ollama:tiny"

    store, digest = tmp_path / "ollama", "a" * 64
    manifest = store / "manifests/registry.ollama.ai/library/tiny/latest"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    monkeypatch.setenv("OLLAMA_MODELS", str(store))
    with pytest.raises(ModelError, match="is gone"):
        target_for("ollama:tiny")
    (store / "blobs").mkdir()
    (store / "blobs" / f"sha256-{digest}").write_bytes(b"GGUF")
    assert target_for("ollama:tiny") == str(store / "blobs" / f"sha256-{digest}")
