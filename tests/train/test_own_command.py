"""`specchat train` on a command line: exit codes, and one line for what goes wrong."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from specchat.cli.main import run
from specchat.models.load import EMBEDDED
from tests.tiny import speaking


@pytest.fixture
def rows(tmp_path):
    """A function that writes so many questions."""

    def rows(count):
        path = tmp_path / "rows.jsonl"
        path.write_text(
            "".join(json.dumps({"turns": [f"{number} and {number % 7}"]}) + "\n" for number in range(count))
        )
        return str(path)

    return rows


def train(*arguments):
    return run(["train", *map(str, arguments)])


def test_a_head_that_is_not_better_has_an_exit_code_and_is_kept_aside(rows, tmp_path, capfd):
    out = tmp_path / "head"

    code = train(
        "head", "--kind", "medusa", "--target", speaking(1), "--data", rows(24), "--out", out,
        "--tokens", 1, "--limit", 8, "--against", "none",
    )  # fmt: skip

    said = capfd.readouterr()
    assert 1 == code
    assert "not installed, for it is not certainly better" in said.err.splitlines()[-1]
    assert "" == said.out
    assert not (out / "config.json").exists()
    assert (out / "refused" / "README.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["head", "--kind", "hydra"], 2, "hydra"),
        (["head", "--data", "nowhere"], 2, "no such file or folder"),
        (["head", "--out", EMBEDDED / "eagle3"], 2, "stay as they are"),
        (["head", "--kind", "eagle3"], 7, "take eagle, medusa, mtp"),
        (["head", "--kind", "medusa", "--against", EMBEDDED / "medusa"], 7, "does not fit"),
        (["continue", EMBEDDED / "eagle"], 7, "does not fit"),
        (["continue", "nowhere"], 7, "no such folder"),
        (["head", "--kind", "medusa", "--limit", 40_000], 2, "the different questions that fit"),
        (["draft", "--start", EMBEDDED / "draft"], 7, "tokens are not those"),
    ],
    ids=lambda value: str(value[-1]) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_told_in_one_line(arguments, code, word, rows, tmp_path, capfd):
    usual = ["--target", speaking(1), "--out", tmp_path / "out", "--data", rows(24)]

    assert code == train(arguments[0], *usual, *arguments[1:])
    assert word in capfd.readouterr().err


def test_too_little_data_is_told_before_the_target_is_loaded(rows, tmp_path, capfd):
    assert 2 == train("head", "--target", "nowhere", "--data", rows(5), "--out", tmp_path / "out")
    assert "too little to learn from" in capfd.readouterr().err


def test_one_question_asked_often_is_too_little(tmp_path, capfd):
    rows = tmp_path / "rows.jsonl"
    rows.write_text((json.dumps({"turns": ["again?"]}) + "\n") * 60)

    assert 2 == train("head", "--kind", "medusa", "--target", speaking(1), "--data", rows, "--out", tmp_path / "out")
    assert "too little to learn from" in capfd.readouterr().err


@pytest.mark.full
def test_torchrun_starts_several_processes_that_install_one_head(rows, tmp_path):
    target, out = shutil.copytree(speaking(1), tmp_path / "target"), tmp_path / "head"

    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "specchat"),
            *("train", "head", "--kind", "medusa", "--target", target, "--data", rows(24), "--out", out),
            *("--tokens", "5000", "--limit", "8", "--against", "none", "--force"),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip

    assert 1 == done.stderr.count(f'heads = ["{out}"]')
    assert (out / "config.json").is_file()
