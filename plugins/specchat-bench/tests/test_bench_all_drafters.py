"""`specchat bench drafters` with every drafter: a target with all heads has every row of the table."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.cli.main import run
from specchat.profile.drafter_names import DRAFTER_NAMES
from tests.tiny import SPEAKING, speaking
from tests.tiny_heads import saved_head

HEADS = ("eagle3", "mtp")
NEEDS = {  # beside a target without heads
    "draft": "a draft model", "eagle3": "an EAGLE-3 head trained for this target",
    "mtp": "a target whose checkpoint has MTP layers",
}  # fmt: skip
PLAIN_FIRST = sorted(DRAFTER_NAMES, key=lambda name: name != "plain")  # the baseline comes first
TEMPERATURES = ("0", "0.8")
SHORT = ["--kind", "chat", "--count", "1", "--limit", "3"]


def changed(source, folder, **config):
    """A copy of the folder of a model that says other things of itself."""
    shutil.copytree(source, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return str(folder)


def head_of(kind, folder):
    """A tiny head that knows as many tokens as a target that speaks."""
    head = changed(saved_head(kind), folder, vocab_size=SPEAKING)
    if kind == "eagle3":
        weights = load_file(folder / "model.safetensors")
        inside = torch.zeros(SPEAKING, dtype=torch.bool)
        inside[: len(weights["t2d"])] = weights["t2d"]
        save_file(weights | {"t2d": inside}, folder / "model.safetensors")
    return head


@pytest.fixture
def profile(tmp_path):
    """With a draft model, and a head of each kind."""
    target = speaking(3)
    heads = [head_of(kind, tmp_path / kind) for kind in HEADS]
    path = tmp_path / "all.toml"
    path.write_text(f'[models]\ntarget = "{target}"\ndraft = "{speaking(1)}"\nheads = {json.dumps(heads)}\n')
    return str(path)


def rows_of(table):
    """The cells of every row of the table, and the lines about skipped drafters."""
    header, _, *lines = [line for line in table.splitlines() if line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert all(len(row) == header.count("|") - 1 for row in rows)
    return rows, [line for line in lines if " needs a" in line]


def assert_skipped(lines, needs):
    """There is a line for each of these drafters that says what it lacks."""
    assert {line.split(";")[0] for line in lines} == {
        f"{kind}: variant '{kind}' needs {need}" for kind, need in needs.items()
    }


def test_every_drafter_runs_and_has_a_row_at_each_temperature(profile, capsys):
    assert run(["bench", "drafters", *SHORT, "-P", profile]) == 0

    rows, skipped = rows_of(capsys.readouterr().out)
    assert [("chat", at, drafter) for at in TEMPERATURES for drafter in PLAIN_FIRST] == [tuple(row[:3]) for row in rows]
    assert {"1"} == {row[-1] for row in rows}  # the one answer is identical
    assert [] == skipped


@pytest.mark.full
def test_of_the_embedded_models_every_drafter_runs(capsys):
    assert run(["bench", "drafters", *SHORT]) == 0

    rows, skipped = rows_of(capsys.readouterr().out)
    assert PLAIN_FIRST * len(TEMPERATURES) == [row[2] for row in rows]
    assert {"1"} == {row[-1] for row in rows}
    assert [] == skipped


def test_a_target_alone_has_a_line_for_each_drafter_that_says_what_it_lacks(capsys):
    alone = ["--target", str(speaking(3)), "--draft", "", "--head", ""]
    assert run(["bench", "drafters", *SHORT, *alone]) == 0

    rows, skipped = rows_of(capsys.readouterr().out)
    assert [name for name in PLAIN_FIRST if name not in NEEDS] * len(TEMPERATURES) == [row[2] for row in rows]
    assert_skipped(skipped, NEEDS)
