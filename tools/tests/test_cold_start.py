"""The tool starts an engine with the file that it writes, and reports each stage."""

import json

import pytest

from tools import cold_start

SIZES = {"LAYERS": 1, "WIDTH": 64, "MLP_WIDTH": 96, "HEADS": 2, "KV_HEADS": 1, "HEAD_SIZE": 32, "VOCABULARY": 400}


def test_a_random_file_is_prepared_loaded_and_answers(tmp_path, monkeypatch, capsys):
    if not cold_start.Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is read from Linux' /proc")
    for name, size in SIZES.items():
        monkeypatch.setattr(cold_start, name, size)
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path))
    cold_start.write_random_gguf(tmp_path / "random.gguf", "Q4_0")

    cold_start.start(str(tmp_path / "random.gguf"))

    stages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["imports", "preparation", "load", "first token", "in all"] == [each["stage"] for each in stages]
    assert all(each["peak MiB"] >= each["own MiB"] > 0 for each in stages)
