"""`specchat bench peers`, as it is asked for."""

import json

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
        (["--model-shape", "3b"], "0.5b, gemma-270m, gemma4-360m, moe-0.7b-a0.1b, 8b"),
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["--model-shape", "0.5b", "--prompt-tokens", "64"], "--prompt-tokens"),
    ],
)
def test_what_cannot_be_measured_is_told(words, said, capsys):
    assert run(["bench", "peers", *words]) != 0

    assert said in capsys.readouterr().err


def test_prompts_of_a_length_are_read_beside_others_if_the_window_has_room(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(json.dumps({"turns": ["Why?"]}))
    words = ["bench", "peers", str(tmp_path), "--target", "embedded", "--draft", "", "--limit", "1"]

    assert run([*words, "--prompt-tokens", "40", "--filter", "lookup / our plain"]) == 0
    assert "| lookup / our plain |" in capsys.readouterr().out
    assert run([*words, "--prompt-tokens", "100000"]) != 0
    assert "no prompt there leaves room" in capsys.readouterr().err
