"""The table of longer answers: what is measured once is kept, and processes of one prompt are counted apart."""

import json
from pathlib import Path
from types import SimpleNamespace

from tools import longer_answers
from tools.instrument import run_instrument

SPEEDUPS = {"chat": [1.1, 1.4, 1.2], "code": [1.5], "edit": [2.0]}


def row(kind: str, speedup: float, drafter: str = "auto") -> dict[str, object]:
    return {
        "kind": kind, "temperature": 0.2, "drafter": drafter, "answers": 1, "speedup": speedup, "identical": 1,
        "speedup_interval": [speedup, speedup], "tokens_per_step": 2.0, "pass_cost": 1.3, "draft_cost": 0.2,
    }  # fmt: skip


def test_each_setting_is_measured_once(tmp_path, monkeypatch, capsys):
    asked, kinds = list[str](), ("chat", "code", "edit")
    for kind, speedups in SPEEDUPS.items():
        (tmp_path / f"{kind}.jsonl").write_text("".join(f'{{"turns": ["{each}"]}}\n' for each in speedups))

    def bench(command, **_options):
        prompts, into = Path(command[5]), Path(command[command.index("--json") + 1])
        asked.append(into.stem)
        if prompts.is_file():
            speedup = float(json.loads(prompts.read_text())["turns"][0])
            rows = [row(prompts.stem, 1.0, "plain"), row(prompts.stem, speedup)]
        else:
            rows = [each for kind in kinds for each in (row(kind, 1.0, "plain"), row(kind, SPEEDUPS[kind][0]))]
        into.write_text(json.dumps({"rows": rows}))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(longer_answers.subprocess, "run", bench)
    options = str(tmp_path), str(tmp_path / "measured"), "--threads", "1", "--fresh", "3", "--temperatures", "0.2"
    assert run_instrument(longer_answers.main, options) == 0
    first, count = capsys.readouterr().out, len(asked)
    assert run_instrument(longer_answers.main, options) == 0

    assert capsys.readouterr().out == first
    assert len(asked) == count == 2 + 5
    assert "| float | 1 | edit | 0.2 | 1 | 2.00 | 2.00 to 2.00 | 2.00 | 1.30 | 0.20 | 1 of 1 |" in first
    assert "| gguf | 1 | chat | 0.2 | 3 | 1.20 | 1.10 to 1.40 | 3 of 3 |" in first


def test_a_bench_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(longer_answers.subprocess, "run", lambda *_command, **_options: SimpleNamespace(returncode=1))

    assert run_instrument(longer_answers.main, (str(tmp_path), str(tmp_path / "measured"))) != 0

    assert "gguf-1: the bench did not end" in capsys.readouterr().err
    assert not list((tmp_path / "measured").iterdir())
