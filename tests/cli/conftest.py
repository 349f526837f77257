"""What tests of commands have in common."""

import pytest


@pytest.fixture
def own_runtime(tmp_path, monkeypatch):
    """A folder of its own for what the engine process keeps, the history among it."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(folder))
