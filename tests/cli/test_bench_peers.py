"""`specchat bench peers`, as it is asked for."""

import pytest

from specchat.bench.llama_cpp import LIBRARY_VARIABLE
from specchat.cli.main import run
from tests.bench.counting import config_file


def test_a_shape_is_edited_beside_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr("specchat.bench.llama_cpp.find_library", lambda _name: None)
    shape = ["--model-shape", str(config_file(tmp_path)), "--count", "1", "--limit", "60", "--filter", "suffix /"]

    assert run(["bench", "peers", *shape]) == 0

    out, err = capsys.readouterr()
    assert "| suffix / generate |" in out
    assert "1 of 1" in out
    assert "plain / generate" not in out
    assert "llama.cpp: no library found" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "prompts, or --model-shape"),
        (["--model-shape", "0.5b", "--replace-interval", "1"], "--replace-interval"),
        (["--model-shape", "3b"], "0.5b, 8b"),
        (["nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_measured_is_told(words, said, capsys):
    assert run(["bench", "peers", *words]) != 0

    assert said in capsys.readouterr().err
