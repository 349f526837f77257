"""`python -m tools.passes`, as it is asked for."""

from tests.counting import config_file
from tests.each_row import each_row
from tools.instrument import run_instrument
from tools.passes import passes


def test_a_shape_is_measured_and_its_figures_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    shape = [
        "--model-shape",
        str(config_file(tmp_path)),
        "--contexts",
        "16,100000",
        "--rounds",
        "1",
    ]

    assert run_instrument(passes, [*shape, "--dtypes", "float32"]) == 0

    out, err = capsys.readouterr()
    assert "| float32 | float | 16 |" in out
    assert "meaningless" in err
    assert "100000 tokens and a few steps do not fit" in err


@each_row(
    "words, said",
    [
        (["--contexts", "many"], "--contexts 'many'"),
        (["--contexts", "0"], "at least 1"),
        (["--rounds", "0"], "--rounds"),
        (["--model-shape", "3b"], "0.5b, gemma-270m, gemma4-360m, moe-0.7b-a0.1b, 8b"),
    ],
)
def test_what_cannot_be_measured_is_told(words, said, capsys):
    assert run_instrument(passes, words) != 0

    assert said in capsys.readouterr().err
