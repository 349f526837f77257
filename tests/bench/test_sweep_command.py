"""`specchat bench sweep` as it is typed."""

import csv
import json

import pytest

from specchat.bench import sweep as sweeping
from specchat.bench.client_latency import as_rows, as_table, measure_client_latency
from specchat.chat.request import Request
from specchat.cli.main import run
from specchat.host.client import SessionRequest
from specchat.host.spawn import history_path
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.tiny import speaking

ALONE = ["--target", str(speaking()), "--draft", "", "--limit", "4", "--count", "1", "--temperatures", "0"]
SHORT = ["--drafters", "lookup,eagle3", "--budgets", "2,4", "--kind", "edit", *ALONE]


@pytest.fixture
def prompts(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    rows = [{"turns": ["Why is the sky blue?"]}, {"instruction": "Rename a to b.", "before": "a = 1\n", "path": "a.py"}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_sweep_is_printed_written_and_drawn(prompts, tmp_path, capsys):
    files = {ending: tmp_path / f"sweep.{ending}" for ending in ("json", "csv", "svg")}
    words = ["--json", str(files["json"]), "--csv", str(files["csv"]), "--picture", str(files["svg"])]

    assert run(["bench", "sweep", str(prompts), *SHORT, *words]) == 0

    said, lines = capsys.readouterr(), list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert "| edit | 0 | lookup 4 |" in said.out
    assert "edit T=0: " in said.out
    assert "eagle3: " not in said.out
    assert "variant 'eagle3' needs an EAGLE-3 head" in said.out
    assert "4 answers, less than a minute in all" in said.err
    assert [("plain", "0"), ("lookup", "2"), ("lookup", "4")] == [(row["drafter"], row["budget"]) for row in lines]
    whole = json.loads(files["json"].read_text())
    assert (True, ["eagle3"]) == (whole["is_whole"], list(whole["skipped"]))
    assert b"<svg" in files["svg"].read_bytes()


def test_an_interrupted_sweep_says_what_it_has_and_goes_on_from_there(prompts, monkeypatch, capsys):
    real, asked = sweeping.time_answer, []

    def hear(events):
        asked.append(1)
        if len(asked) == 4:  # twice to warm up, plain, and this
            raise KeyboardInterrupt
        return real(events)

    monkeypatch.setattr(sweeping, "hear", hear)
    assert run(["bench", "sweep", str(prompts), *SHORT]) == 130
    interrupted = capsys.readouterr()
    assert run(["bench", "sweep", str(prompts), *SHORT]) == 0
    resumed = capsys.readouterr()

    assert "| edit | 0 | plain |" in interrupted.out
    assert "lookup" not in interrupted.out.split("|\n\n")[0].replace("| who |", "")
    assert "1 answers are kept, and the same command goes on" in interrupted.err
    assert "1 answers are kept from before" in resumed.err
    assert "| edit | 0 | lookup 4 |" in resumed.out
    assert "edit T=0 1/1 plain" not in resumed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl: no such file or folder"),
        (["--drafters", "egle3"], "unknown drafter 'egle3'; did you mean 'eagle3'?"),
        (["--budgets", "4,many"], "'4,many' is no list of numbers"),
        (["--budgets", "0"], "0 does not lie between 1 and 128"),
        (["--picture", "x.gif"], "ends in .png or .svg"),
        (["--csv", "no/such/x.csv"], "no/such/x.csv: its folder is not there"),
        (["--kind", "creative", *ALONE], "no prompt of such a kind there; there are edit"),
    ],
)
def test_what_cannot_be_swept_is_said_in_a_line(words, said, capsys):
    assert run(["bench", "sweep", *words]) == 2

    assert said in capsys.readouterr().err


def test_an_empty_folder_and_a_broken_file_are_said_to_be_so(tmp_path, capsys):
    assert run(["bench", "sweep", str(tmp_path), *ALONE]) == 2
    (tmp_path / "bad.jsonl").write_text("{")
    assert run(["bench", "sweep", str(tmp_path), *ALONE]) == 2

    err = capsys.readouterr().err
    assert "no *.jsonl in this folder" in err
    assert "bad.jsonl:1: neither `turns`" in err


@pytest.mark.usefixtures("runtime")
def test_a_client_times_the_engine_process_and_leaves_nothing_behind():
    from specchat.chat.history import HistoryReader

    told: list[str] = []
    prompts = {"chat": [Request("fail"), Request("count 3"), Request("count 4")]}

    waited = measure_client_latency(SessionRequest(), prompts, 1, 16, told.append)

    assert ["auto", "plain"] == [row.variant for row in waited]
    assert all(1 == len(row.answers) and 0 < row.median_ttft_seconds <= row.median_request_seconds for row in waited)
    assert all(row.answers[0].text.endswith("seed 7 turn 0") for row in waited)  # each in a conversation of its own
    assert "left out" in told[0]
    assert "| chat | plain | 1 |" in as_table(waited)
    assert {"between_texts_p50_seconds", "between_texts_p99_seconds"} <= set(as_rows(waited)[0])
    assert [] == HistoryReader(history_path()).threads()


def test_a_sweep_that_was_ended_before_its_first_answer_has_nothing_to_say(prompts, monkeypatch, capsys):
    def hear(_events):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "hear", hear)

    assert run(["bench", "sweep", str(prompts), *SHORT]) == 130
    assert "" == capsys.readouterr().out
