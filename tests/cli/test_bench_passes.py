"""`specchat bench passes`, as it is asked for."""

import json

import pytest

from specchat.cli.main import run
from tests.bench.counting import config_file


def test_a_shape_is_measured_and_its_figures_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    raw = tmp_path / "raw.json"
    shape = [
        "--model-shape",
        str(config_file(tmp_path)),
        "--contexts",
        "16,100000",
        "--rounds",
        "1",
        "--limit",
        "8",
    ]

    assert run(["bench", "passes", *shape, "--dtypes", "float32", "--acceptance", "0.9", "--json", str(raw)]) == 0

    out, err = capsys.readouterr()
    assert "| float32 | 16 |" in out
    assert "predicted speedup" in out
    assert "meaningless" in err
    assert "100000 tokens and an answer do not fit" in err
    assert ["bandwidth_utilization" in row for row in json.loads(raw.read_text())] == [True, False]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--contexts", "many"], "--contexts 'many'"),
        (["--contexts", "0"], "at least 1"),
        (["--acceptance", "0.9,2"], "between 0 and 1"),
        (["--acceptance", "often"], "--acceptance 'often'"),
        (["--rounds", "0"], "--rounds"),
        (["--model-shape", "3b"], "0.5b, 8b"),
    ],
)
def test_what_cannot_be_measured_is_told(words, said, capsys):
    assert run(["bench", "passes", *words]) != 0

    assert said in capsys.readouterr().err
