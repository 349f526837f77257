"""`python -m tools.plot_bench`: the file of a bench as a picture, the same each time."""

from __future__ import annotations

import json

import pytest

from tools.instrument import run_instrument
from tools.plot_bench import plot

ROW = {"kind": "edit", "temperature": 0, "speedup_range": [1.0, 2.0], "predicted_speedup": 1.6}
ROWS = [
    ROW | {"drafter": "plain", "budget": 0, "width": 0, "speedup": 1.0},
    ROW | {"drafter": "lookup 4", "budget": 4, "width": 0, "speedup": 1.5},
    ROW | {"drafter": "lookup 8", "budget": 8, "width": 0, "speedup": 1.7},
]


def test_a_picture_is_drawn_in_both_formats_and_the_same_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps({"target": "it", "device": "cpu", "dtype": "float32", "date": "today", "rows": ROWS}))

    for name in ("one.svg", "two.svg", "three.png"):
        assert run_instrument(plot, [str(bench), str(tmp_path / name)]) == 0

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert all(word in (tmp_path / "one.svg").read_text() for word in ("it on cpu", "lookup", "edit, temperature 0"))
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")
    assert run_instrument(plot, [str(bench), "picture.gif"]) == 2
