"""What `specchat bench` can measure, and how it is asked for."""

import json

import pytest

from specchat.cli.main import run
from tests.tiny import speaking

ALONE = ["--target", str(speaking()), "--draft", ""]


@pytest.fixture
def prompts(tmp_path):
    rows = [{"turns": ["Why is the sky blue?"]}, {"instruction": "Rename a to b.", "before": "a = 1\n", "path": "a.py"}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_every_variant_stands_in_one_table(prompts, capsys):
    assert run(["bench", "--variants", "plain,lookup,eagle3", prompts, "--limit", "4", *ALONE]) == 0

    out = capsys.readouterr().out
    assert "| lookup | edit | 0.8 |" in out
    assert "eagle3: variant 'eagle3' needs an EAGLE-3 head" in out


def test_without_prompts_our_own_questions_are_asked(capsys):
    assert (
        run(["bench", "variants", "--variants", "plain", "--count", "1", "--limit", "2", "--kind", "code", *ALONE]) == 0
    )

    assert "| plain | code | 0 | 1.00 |" in capsys.readouterr().out


def test_auto_is_measured_against_plain_by_kind(prompts, tmp_path, capsys):
    raw = tmp_path / "rows.csv"
    assert run(["bench", "auto", prompts, "--limit", "4", "--kind", "edit", "--rows", str(raw), *ALONE]) == 0

    assert "| edit | 0.8 |" in capsys.readouterr().out
    assert 1 + 2 * (1 + 3) == len(raw.read_text().splitlines())  # theirs, and ours of this kind


def test_a_prompt_that_does_not_fit_makes_room_for_the_next(tmp_path, capsys):
    path, raw = tmp_path / "prompts.jsonl", tmp_path / "rows.csv"
    edits = [{"instruction": "Rename a to b.", "before": "a = 1\n" * lines, "path": "a.py"} for lines in (9000, 1)]
    path.write_text("\n".join(map(json.dumps, edits)))
    words = ["--count", "1", "--limit", "4", "--kind", "edit", "--rows", str(raw)]

    assert run(["bench", "auto", str(path), *words, *ALONE]) == 0

    assert 1 + 2 == len(raw.read_text().splitlines())
    assert "left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--variants", "magic"], "unknown variant 'magic'"),
        (["variants", "nowhere.jsonl"], "no such file"),
        (["auto", "nowhere.jsonl"], "no such file"),
        (["nowhere.jsonl"], "no such file"),
        (["variants", "--kind", "poems", *ALONE], "no prompt of such a kind"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(words, said, capsys):
    assert run(["bench", *words]) != 0

    assert said in capsys.readouterr().err
