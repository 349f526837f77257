"""`specchat train` on the command line: exit codes and one-line errors."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from specchat.cli.main import run
from specchat.plugins import own_plugins
from specchat.weights.load_options import EMBEDDED
from tests.tiny import speaking


@pytest.fixture
def rows(tmp_path):
    """A function that writes a file of `count` questions."""

    def rows(count):
        path = tmp_path / "rows.jsonl"
        path.write_text(
            "".join(json.dumps({"turns": [f"{number} and {number % 7}"]}) + "\n" for number in range(count))
        )
        return str(path)

    return rows


def train(*arguments):
    return run(["train", *map(str, arguments)])


def test_a_head_that_is_not_better_has_an_exit_code_and_is_in_rejected(rows, tmp_path, capfd):
    out = tmp_path / "head"

    code = train(
        "head", "--kind", "medusa", "--target", speaking(1), "--data", rows(24), "--out", out,
        "--tokens", 1, "--max-tokens", 8, "--against", "none",
    )  # fmt: skip

    output = capfd.readouterr()
    assert 1 == code
    assert "not installed: it is not better" in output.err.splitlines()[-1]
    assert "" == output.out
    assert not (out / "config.json").exists()
    assert (out / "rejected" / "README.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["head", "--kind", "hydra"], 2, "hydra"),
        (["head", "--data", "nowhere"], 2, "no such file or folder"),
        (["head", "--out", EMBEDDED / "eagle3"], 2, "the embedded models are read-only"),
        (["head", "--kind", "eagle3"], 7, "choose eagle, medusa, mtp"),
        (["head", "--kind", "medusa", "--against", EMBEDDED / "medusa"], 7, "does not fit"),
        (["continue", EMBEDDED / "eagle"], 7, "does not fit"),
        (["continue", "nowhere"], 7, "no such folder"),
        (["head", "--kind", "medusa", "--max-tokens", 40_000], 2, "the different questions that fit"),
        (["draft", "--start", EMBEDDED / "draft"], 7, "tokens are not those"),
    ],
    ids=lambda value: str(value[-1]) if isinstance(value, list) else "",
)
def test_errors_are_one_line(arguments, code, message, rows, tmp_path, capfd):
    usual = ["--target", speaking(1), "--out", tmp_path / "out", "--data", rows(24)]

    assert code == train(arguments[0], *usual, *arguments[1:])
    assert message in capfd.readouterr().err


def test_a_kind_whose_drafter_is_not_installed_is_an_error_before_anything_is_trained(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(own_plugins, "find_extensions", lambda _kind: {})

    for words in (["head", "--kind", "medusa", "--target", "nowhere"], ["continue", EMBEDDED / "eagle"]):
        assert 2 == train(*words, "--data", "nowhere", "--out", tmp_path / "out")
        assert "installs it" in capfd.readouterr().err


def test_too_few_questions_are_an_error_before_the_target_is_loaded(rows, tmp_path, capfd):
    assert 2 == train("head", "--target", "nowhere", "--data", rows(5), "--out", tmp_path / "out")
    assert "too few questions" in capfd.readouterr().err


def test_a_repeated_question_counts_once(tmp_path, capfd):
    rows = tmp_path / "rows.jsonl"
    rows.write_text((json.dumps({"turns": ["again?"]}) + "\n") * 60)

    assert 2 == train("head", "--kind", "medusa", "--target", speaking(1), "--data", rows, "--out", tmp_path / "out")
    assert "too few questions" in capfd.readouterr().err


@pytest.mark.full
def test_several_processes_under_torchrun_install_one_head(rows, tmp_path):
    target, out = shutil.copytree(speaking(1), tmp_path / "target"), tmp_path / "head"

    process = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
            *("--nproc-per-node", "2", "-m", "specchat"),
            *("train", "head", "--kind", "medusa", "--target", target, "--data", rows(24), "--out", out),
            *("--tokens", "5000", "--max-tokens", "8", "--against", "none", "--force"),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip

    assert process.returncode == 0, process.stderr
    assert 1 == process.stderr.count(f'heads = ["{out}"]')
    assert (out / "config.json").is_file()
