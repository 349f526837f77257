"""The report of `specchat bench gpu`: its sections on the simulated GPU, and one that fails beside others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specchat_bench.gpu import report
from specchat_bench.gpu.report import Section, as_json, as_text, attempt, run_sections
from tests.fake_gpu import fake_gpu

BLOCKED = (  # not on a bare machine with torch
    "textual", "prompt_toolkit", "openai", "mcp", "aiohttp", "gguf", "llguidance", "pygls", "lsprotocol", "acp", "jedi",
    "prometheus_client", "textual_serve", "httpx2",
)  # fmt: skip
WITHOUT_THEM = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
import specchat.cli.main, specchat.cli.doctor, specchat_bench.verify_command
import specchat_bench.gpu.sections, specchat_bench.lossless_check, specchat_bench.tokenized_prompts
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
load_engine(Profile().override({{"models.target": "embedded", "models.device": "cpu"}}))
"""


def test_a_section_that_fails_does_not_stop_the_others():
    def broken():
        yield {"what": "copy", "us": 1.25}
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    progress = list[str]()
    results = list(
        run_sections(
            [Section("first", "Why.", broken), Section("second", "", lambda: [attempt("x", lambda: {"us": 1 / 0})]),
             Section("third", "", lambda: [{"what": "y", "own bits": True}])], progress.append,
        )
    )  # fmt: skip

    assert [each.error for each in results] == ["RuntimeError: CUDA error: an illegal memory access more", "", ""]
    assert [each.has_errors for each in results] == [True, True, False]
    assert [line.split(" s: ")[1] for line in progress] == [
        "first",
        "first: copy",
        "second",
        "second: x",
        "third",
        "third: y",
    ]
    assert "| copy | 1.25 |" in as_text(results[0]) and "failed: RuntimeError" in as_text(results[0])
    assert (
        json.loads(as_json(results))["sections"][1]["lines"][0]["error message"]
        == "ZeroDivisionError: division by zero"
    )
    assert "| y | yes |" in as_text(results[2])


def test_what_comes_after_the_limit_is_left_out(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(report, "perf_counter", lambda: now[0])

    def slow():
        yield {"what": "x"}
        now[0] = 301.0
        yield {"what": "y"}
        yield {"what": "never"}

    results = list(run_sections([Section("slow", "", slow), Section("late", "", slow)], lambda _line: None))

    assert [line["what"] for line in results[0].lines] == ["x", "y"]
    assert results[1].lines == () and all("left out" in each.error for each in results)


def test_a_line_keeps_what_was_measured_before_and_after_a_failure():
    line = attempt("x", lambda: {"error": 0.1}, lambda: {"us 1": 1 / 0}, lambda: {"us 4": 2.0})

    assert line == {"what": "x", "error": 0.1, "us 4": 2.0, "error message": "ZeroDivisionError: division by zero"}


@pytest.mark.full
def test_it_needs_none_of_the_packages_of_the_front_ends(tmp_path):
    command, root = [sys.executable, "-c", WITHOUT_THEM], Path(__file__).parents[3]
    plugin = str(root / "plugins" / "specchat-bench")
    environment = {"SPECCHAT_HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": plugin}
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)

    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def gpu():
    with fake_gpu() as fake:
        yield fake


@pytest.mark.full
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["device", "floors", "products", "sampler", "passes", "eagle"])
def test_it_measures_the_simulated_gpu_without_claiming_a_time(name, tmp_path, monkeypatch, capsys):
    from specchat_bench.gpu import networks
    from specchat_bench.gpu.command import gpu as command

    monkeypatch.setattr(networks, "WEIGHTS", ("float", "int8", "W4A16", "Q4_K"))
    path = tmp_path / "report.json"

    command.main(["--sections", name, "--report", str(path)], standalone_mode=False)

    (section,) = json.loads(path.read_text())["sections"]
    assert not section["error"] and section["lines"]
    failed = [line["what"] for line in section["lines"] if "error message" in line]
    without_triton = ("W4A16", "Q4_K", "clocks and power")
    assert all(any(kernel in each for kernel in without_triton) for each in failed)
    timed = [column for line in section["lines"] for column in line if column.split()[0] in ("us", "ms", "GB/s")]
    assert all(line.get(column) is None for line in section["lines"] for column in timed)
    assert f"## {name}" in capsys.readouterr().out
