"""`python -m tools.random_peers`, as it is asked for."""

from specchat_bench.llama_cpp import LIBRARY_VARIABLE
from tests.counting import config_file
from tests.each_row import each_row
from tools.instrument import run_instrument
from tools.random_peers import peers


def test_edits_of_a_shape_are_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr("specchat_bench.llama_cpp.find_library", lambda _name: None)
    words = [str(config_file(tmp_path)), "--count", "1", "--limit", "60", "--filter", "suffix /"]

    assert 0 == run_instrument(peers, words)

    out, err = capsys.readouterr()
    assert "| suffix / generate |" in out
    assert "1 of 1" in out
    assert "plain / generate" not in out
    assert "llama.cpp: no library found" in err


@each_row(
    "words, reason",
    [(["0.5b", "--replace-interval", "1"], "--replace-interval"), (["3b"], "0.5b, gemma-270m, gemma4-360m")],
)
def test_what_cannot_be_measured_is_one_line(words, reason, capsys):
    assert 2 == run_instrument(peers, words)
    assert reason in capsys.readouterr().err
