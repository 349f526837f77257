"""`specchat bench drafters` as it is typed."""

import csv
import json

import pytest

from specchat.cli.main import run
from specchat_bench import measure
from tests.each_row import each_row
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.tiny import speaking


def alone() -> list[str]:
    """The options of a bench that computes one tiny model."""
    return ["--target", str(speaking()), "--draft", "", "--limit", "4", "--count", "1", "--temperatures", "0"]


def short() -> list[str]:
    return ["--drafters", "lookup,eagle3", "--budgets", "2,4", "--kind", "edit", *alone()]


@pytest.fixture
def prompts(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    rows = [{"turns": ["Why is the sky blue?"]}, {"instruction": "Rename a to b.", "before": "a = 1\n", "path": "a.py"}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_sweep_is_printed_and_written(prompts, tmp_path, capsys):
    files = {ending: tmp_path / f"sweep.{ending}" for ending in ("json", "csv")}
    words = ["--json", str(files["json"]), "--csv", str(files["csv"])]

    assert run(["bench", "drafters", str(prompts), *short(), *words]) == 0

    said, lines = capsys.readouterr(), list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert "| edit | 0 | lookup 4 | 1 |" in said.out
    assert "edit T=0: " in said.out
    assert "variant 'eagle3' needs an EAGLE-3 head" in said.out
    assert "4 answers, less than a minute in all" in said.err
    assert [("plain", "0"), ("lookup 2", "2"), ("lookup 4", "4")] == [(row["drafter"], row["budget"]) for row in lines]
    whole = json.loads(files["json"].read_text())
    assert (True, ["eagle3"]) == (whole["is_complete"], list(whole["skipped"]))


def test_an_interrupted_sweep_says_what_it_has_and_goes_on_from_there(prompts, monkeypatch, capsys):
    real, asked = measure.time_answer, []

    def hear(events):
        asked.append(1)
        if len(asked) == 4:  # twice to warm up, plain, and this
            raise KeyboardInterrupt
        return real(events)

    monkeypatch.setattr(measure, "time_answer", hear)
    assert run(["bench", "drafters", str(prompts), *short()]) == 130
    interrupted = capsys.readouterr()
    assert run(["bench", "drafters", str(prompts), *short()]) == 0
    resumed = capsys.readouterr()

    assert "| edit | 0 | plain |" in interrupted.out
    assert "lookup" not in interrupted.out.split("|\n\n")[0]
    assert "1 samples are stored, and the same command resumes" in interrupted.err
    assert "1 samples are stored from before" in resumed.err
    assert "| edit | 0 | lookup 4 |" in resumed.out
    assert "edit T=0 1/1 plain" not in resumed.err


@each_row(
    "words, said",
    lambda: [
        (["nowhere.jsonl"], "nowhere.jsonl: no such file or folder"),
        (["--drafters", "egle3"], "unknown drafter 'egle3'; did you mean 'eagle3'?"),
        (["--budgets", "4,many"], "'4,many' is no list of numbers"),
        (["--budgets=-1"], "-1 does not lie between 0 and 128"),
        (["--csv", "no/such/x.csv"], "no/such/x.csv: its folder does not exist"),
        (["--columns", "speeedup"], "unknown column 'speeedup'; did you mean 'speedup'?"),
        (["--kind", "creative", *alone()], "no prompt of such a kind there; there are edit"),
    ],
)
def test_what_cannot_be_swept_is_said_in_a_line(words, said, capsys):
    assert run(["bench", "drafters", *words]) == 2

    assert said in capsys.readouterr().err


def test_an_empty_folder_and_a_broken_file_are_said_to_be_so(tmp_path, capsys):
    assert run(["bench", "drafters", str(tmp_path), *alone()]) == 2
    (tmp_path / "bad.jsonl").write_text("{")
    assert run(["bench", "drafters", str(tmp_path), *alone()]) == 2

    err = capsys.readouterr().err
    assert "no *.jsonl in this folder" in err
    assert "bad.jsonl:1: neither `turns`" in err


def test_a_sweep_that_was_ended_before_its_first_answer_has_nothing_to_say(prompts, monkeypatch, capsys):
    def hear(_events):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "time_answer", hear)

    assert run(["bench", "drafters", str(prompts), *short()]) == 130
    assert "" == capsys.readouterr().out


def test_every_drafter_stands_in_one_table(prompts, capsys):
    words = ["--drafters", "plain,lookup,eagle3", "--limit", "4", *alone()[:4]]

    assert run(["bench", "drafters", str(prompts), *words]) == 0

    out = capsys.readouterr().out
    assert "| edit | 0.8 | lookup |" in out
    assert "eagle3: variant 'eagle3' needs an EAGLE-3 head" in out


def test_without_prompts_the_built_in_ones_are_used(capsys):
    words = ["--drafters", "plain", "--kind", "code", *alone()]

    assert run(["bench", "drafters", *words]) == 0

    assert "| code | 0 | plain | 1 |" in capsys.readouterr().out


def test_too_few_prompts_of_a_kind_are_followed_by_built_in_ones(prompts, capsys):
    words = ["--drafters", "auto", "--limit", "4", "--kind", "edit", "--count", "4", "--temperatures", "0"]

    assert run(["bench", "drafters", str(prompts), *words, *alone()[:4]]) == 0

    assert "| edit | 0 | auto | 4 |" in capsys.readouterr().out  # one of the file, three built-in ones


def test_a_prompt_that_does_not_fit_makes_room_for_the_next(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "prompts.jsonl"
    edits = [{"instruction": "Rename a to b.", "before": "a = 1\n" * lines, "path": "a.py"} for lines in (9000, 1)]
    path.write_text("\n".join(map(json.dumps, edits)))

    assert run(["bench", "drafters", str(path), "--drafters", "auto", "--kind", "edit", *alone()]) == 0

    said = capsys.readouterr()
    assert "| edit | 0 | auto | 1 |" in said.out
    assert "left out" in said.err
