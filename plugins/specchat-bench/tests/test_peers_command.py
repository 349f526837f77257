"""`specchat bench peers`, as it is asked for."""

import json
import sys
from pathlib import Path

import pytest
import torch

from specchat.cli.main import run
from specchat.errors import InputError
from specchat_bench.compared_engines import TransformersModel
from specchat_bench.llama_cpp import LIBRARY_VARIABLE, TimedRun
from tests.each_row import each_row
from tests.gguf_models import write_gguf

QUICK = ["--count", "1", "--limit", "4", "--threads", "1"]


class FakeLlamaCpp:
    """As `LlamaCppModel`, without its library: it writes token 7 and takes a second; a pass takes one for each row."""

    release = "llama 0.5.0"

    def __init__(self, library, file, limits):
        self.file, self.runs, self.threads_of_runs = file, 0, []
        type(self).latest = self

    def generate(self, _prompt, max_tokens):
        self.runs += 1
        if self.runs > type(self).interrupted_after:
            raise KeyboardInterrupt
        self.threads_of_runs.append(torch.get_num_threads())
        return TimedRun([7] * max_tokens, max_tokens, 1.0)

    def prefill(self, tokens):
        self.context = len(tokens)

    def pass_seconds(self, context, tokens):
        assert self.context == context
        if not type(self).drops_tokens:
            raise InputError("llama.cpp cannot drop tokens from its cache of this network")
        return float(len(tokens))


@pytest.fixture
def llama_cpp(monkeypatch):
    """A fake llama.cpp, installed; Ctrl-C is pressed after so many runs."""
    monkeypatch.setattr(FakeLlamaCpp, "interrupted_after", 1000, raising=False)
    monkeypatch.setattr(FakeLlamaCpp, "drops_tokens", True, raising=False)
    monkeypatch.setattr("specchat_bench.llama_cpp.find_library_folder", lambda: Path("lib"))
    monkeypatch.setattr("specchat_bench.llama_cpp.LlamaCppModel", FakeLlamaCpp)
    return FakeLlamaCpp


@pytest.fixture
def gguf(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    file = write_gguf(tmp_path / "tiny.gguf", metadata={"llama.context_length": 2048})
    return str(file)


@each_row(
    "words, said",
    [
        ([], "prompts, or --gguf"),
        (["nowhere.jsonl"], "nowhere.jsonl"),
        ([__file__, "--prompt-tokens", "-1"], "--prompt-tokens"),
    ],
)
def test_what_cannot_be_measured_is_told(words, said, capsys):
    assert run(["bench", "peers", *words]) != 0

    assert said in capsys.readouterr().err


def test_prompts_of_a_length_are_read_beside_others_if_the_window_has_room(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(json.dumps({"turns": ["Why?"]}))
    words = ["bench", "peers", str(tmp_path), "--target", "embedded", "--draft", "", "--limit", "1"]

    assert run([*words, "--prompt-tokens", "40", "--filter", "lookup / our plain"]) == 0
    assert "| lookup / our plain |" in capsys.readouterr().out
    assert run([*words, "--prompt-tokens", "100000"]) != 0
    assert "no prompt there leaves room" in capsys.readouterr().err


def test_a_gguf_file_is_compared_with_llama_cpp_in_one_table(gguf, llama_cpp, monkeypatch, capsys):
    monkeypatch.setattr(TransformersModel, "load", None)  # cannot be called

    assert run(["bench", "peers", "--gguf", gguf, *QUICK]) == 0

    out, err = capsys.readouterr()
    speeds = [["| chat", "1"], ["| code", "1"], ["| edit", "1"], ["| prefill 512", "1"]]
    costs = [["| c(8), plain passes", "1"], ["| c(16), plain passes", "1"]]
    assert [[f"{name}, tokens/s", threads] for name, threads in speeds] + costs == [row[:2] for row in rows_of(out)]
    assert ["4.0", "4.0", "4.0", "512.0", "8.00", "16.00"] == [row[2] for row in rows_of(out)]  # llama.cpp
    assert "tiny.gguf in llama.cpp (llama 0.5.0) and here with --weights" in out
    assert "answered another question of this kind before" in out
    assert "chat 1 of 1, threads 1: plain " in err
    assert "prefill 512, 1 of 1, threads 1: " in err
    assert "prefill 4096: left out, the context window has 2048 tokens" in err
    assert llama_cpp.latest.file == Path(gguf)


def rows_of(out):
    """The cells of the table, without its header."""
    return [line.split(" | ") for line in out.splitlines() if line.startswith("|")][2:]


def test_the_command_the_day_and_the_machine_are_below_the_table(gguf, llama_cpp, monkeypatch, capsys):
    words = ["bench", "peers", "--gguf", gguf, *QUICK]
    monkeypatch.setattr(sys, "argv", ["specchat", *words])
    monkeypatch.setattr("specchat_bench.gguf_peers_table.cpu_name", lambda: "Abacus 3, 2 cores")
    monkeypatch.setattr("specchat_bench.gguf_peers_table.cpu_features", lambda: ("beads", "wires"))
    monkeypatch.setattr("time.strftime", lambda form: "2026-01-02" if form == "%Y-%m-%d" else "")

    assert run(words) == 0

    below = capsys.readouterr().out.partition("\n\n")[2]
    command = f"specchat bench peers --gguf {gguf} --count 1 --limit 4 --threads 1"
    assert below.startswith(f"`{command}`, 2026-01-02, Abacus 3, 2 cores with beads, wires.\n")


def test_numbers_of_threads_take_turns_at_every_prompt(gguf, llama_cpp, monkeypatch, capsys):
    monkeypatch.setattr("specchat_bench.gguf_peers.DEFAULT_THREADS", 2)
    before = torch.get_num_threads()

    assert run(["bench", "peers", "--gguf", gguf, *QUICK, "--threads", "0"]) == 0

    tasks = [tuple(row[:2]) for row in rows_of(capsys.readouterr().out)]
    assert [("| chat, tokens/s", "2"), ("| chat, tokens/s", "1"), ("| code, tokens/s", "2")] == tasks[:3]
    assert [2, 1, 2, 2, 1, 1] == llama_cpp.latest.threads_of_runs[:6]  # warmed up, then a chat
    assert before == torch.get_num_threads()


def test_passes_that_llama_cpp_cannot_take_back_are_left_out(gguf, llama_cpp, monkeypatch, capsys):
    monkeypatch.setattr(llama_cpp, "drops_tokens", False)

    assert run(["bench", "peers", "--gguf", gguf, *QUICK]) == 0

    out, err = capsys.readouterr()
    assert 4 == len([row for row in rows_of(out) if "tokens/s" in row[0]]) == len(rows_of(out))
    assert "c(M): left out, llama.cpp cannot drop tokens" in err


def test_the_prompts_of_a_folder_are_compared_by_kind(gguf, llama_cpp, tmp_path, capsys):
    folder = tmp_path / "prompts"
    folder.mkdir()
    for kind in ("edit", "chat"):
        rows = [{"turns": [f"{word}, is it so?"]} for word in ("First", "Second", "Third")]
        (folder / f"{kind}.jsonl").write_text("\n".join(map(json.dumps, rows)))

    assert run(["bench", "peers", "--gguf", gguf, str(folder), *QUICK, "--count", "2"]) == 0

    rows = rows_of(capsys.readouterr().out)
    assert [("| chat, tokens/s", "0 of 2 |"), ("| edit, tokens/s", "0 of 2 |")] == [
        (row[0], row[-1]) for row in rows[:2]
    ]
    assert "| prefill 512, tokens/s" == rows[2][0]


def test_an_interrupted_comparison_prints_the_rows_so_far(gguf, llama_cpp, monkeypatch, capsys):
    monkeypatch.setattr(llama_cpp, "interrupted_after", 4)  # one to warm up, two for the chat, one for the code

    assert run(["bench", "peers", "--gguf", gguf, *QUICK]) == 130

    out, err = capsys.readouterr()
    assert ["| chat, tokens/s"] == [row[0] for row in rows_of(out)]
    assert "interrupted; the table has what was measured so far" in err


def test_a_comparison_that_is_interrupted_at_once_prints_nothing(gguf, llama_cpp, monkeypatch, capsys):
    monkeypatch.setattr(llama_cpp, "interrupted_after", 0)

    assert run(["bench", "peers", "--gguf", gguf, *QUICK]) == 130

    assert "" == capsys.readouterr().out


def test_without_the_library_a_gguf_file_is_not_loaded(gguf, monkeypatch, capsys):
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr("specchat_bench.llama_cpp.find_library", lambda _name: None)
    monkeypatch.setattr("specchat_bench.peers_command.load_engine_here", None)  # cannot be called

    assert run(["bench", "peers", "--gguf", gguf]) == 2

    out, err = capsys.readouterr()
    assert "" == out
    assert "llama.cpp: no library found; SPECCHAT_LLAMA names a folder" in err
    assert 1 == len(err.splitlines())


@each_row(
    "words, flag",
    [
        (["--target", "embedded"], "--target"),
        (["--prompt-tokens", "64"], "--prompt-tokens"),
        (["--filter", "plain"], "--filter"),
        (["--weights", "float"], "--weights"),
        (["--dtype", "float32"], "--dtype"),
        (["--device", "cpu"], "--device"),
        (["--variant", "suffix"], "--variant"),
        (["--temperature", "0.8"], "--temperature"),
    ],
)
def test_what_a_gguf_file_decides_cannot_be_said_a_second_time(words, flag, capsys):
    assert run(["bench", "peers", "--gguf", "x.gguf", *words]) == 2

    assert f"specchat: --gguf decides what is compared and how; leave {flag} out\n" == capsys.readouterr().err


@each_row(
    "words, output",
    [
        (["embedded"], "embedded: not a GGUF file; give one, a folder with one, starter or ollama:NAME"),
        (["nowhere.gguf"], "nowhere.gguf: no such folder; give a model's folder, a GGUF file"),
        (["x.gguf", "--count", "0"], "--count and --limit must be at least 1"),
        (["x.gguf", "--limit", "0"], "--count and --limit must be at least 1"),
        (["x.gguf", "--threads=-1"], "--threads 0 or more"),
        (["x.gguf", "nowhere.jsonl"], "nowhere.jsonl: no such file or folder"),
        (["x.gguf", "nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_what_cannot_be_compared_with_llama_cpp_is_one_line(words, output, llama_cpp, capsys):
    assert run(["bench", "peers", "--gguf", *words]) != 0

    err = capsys.readouterr().err
    assert output in err
    assert 1 == len(err.splitlines())


def test_a_file_that_is_no_gguf_is_one_line(llama_cpp, tmp_path, capsys):
    (tmp_path / "text.gguf").write_text("no weights, only words")

    assert run(["bench", "peers", "--gguf", str(tmp_path / "text.gguf"), *QUICK]) != 0

    out, err = capsys.readouterr()
    assert ("", 1) == (out, len(err.splitlines()))
    assert "text.gguf" in err


def test_an_architecture_that_is_not_read_is_one_line(llama_cpp, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    file = write_gguf(tmp_path / "tiny.gguf", metadata={"general.architecture": "abacus"})

    assert run(["bench", "peers", "--gguf", str(file), *QUICK]) != 0

    out, err = capsys.readouterr()
    assert ("", 1) == (out, len(err.splitlines()))
    assert "abacus" in err
    assert "supported are" in err


def test_a_dry_run_plans_the_gguf_file(gguf, capsys):
    assert run(["bench", "peers", "--gguf", gguf, "--dry-run"]) == 0

    assert "tiny.gguf" in capsys.readouterr().out
