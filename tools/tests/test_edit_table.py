"""The table of edits, with models that need no engine."""

from __future__ import annotations

import json
from dataclasses import replace

from click.testing import CliRunner

from specchat.syntax import language_of
from tools.edit_cases import FILES, TableCase, mechanical_cases, sketch_cases, substitute, trap_cases
from tools.edit_table import ALONE, MODELS, Row, all_rows, as_table, main, run_case

OLD = "LIMIT = 10\nSTEP = 3\n\n\ndef add(a, b):\n    return a + b\n\n\nprint(add(LIMIT, 2))\n"
NEW = OLD.replace("LIMIT = 10", "LIMIT = 20")
CASE = TableCase("mechanical", "1", "set LIMIT to 20", {"a.py": OLD}, NEW, lambda texts: texts == {"a.py": NEW})


def test_a_hundred_mechanical_edits_of_nine_languages_are_written_by_hand():
    cases = list(mechanical_cases())

    assert 100 == len(cases) == len({(case.name, case.instruction) for case in cases})
    assert all(case.wanted != case.text for case in cases)
    languages = {"python", "javascript", "typescript", "go", "rust", "c", "java", "toml", "yaml"}
    assert languages == {language_of(case.name) for case in cases}
    assert {f"{case.name}.txt" for case in cases} == {each.name for each in FILES.iterdir()}


def test_a_change_counts_its_places():
    assert "b = a1\n" == substitute("a = a1\n", [["a", "b", 1]], "")
    assert "a = 1\n" == substitute("a = a1\n", [["a1", "1"]], "")


def test_every_trap_is_said_in_words():
    words = {case.key.partition(" ")[2]: case.instruction for case in trap_cases()}

    assert len(words) > 5
    assert all(words.values())


def test_an_edit_is_right_refused_or_wrong():
    other, alone = replace(CASE, is_right=lambda _texts: False), replace(CASE, group=ALONE)

    assert ("right", "") == run_case(CASE, "lazy")  # no model is asked
    assert "wrong written" == run_case(other, "perfect")[0]
    assert {"perfect": "right", "lazy": "refused", "lossy": "refused", "talkative": "right"} == {
        model: run_case(alone, model)[0] for model in MODELS
    }


def test_a_sketch_of_a_commit_is_merged_or_goes_to_the_model(tmp_path):
    edit = {"instruction": "raise the limit", "path": "a.py", "before": OLD, "after": NEW}
    (tmp_path / "commit_edits.jsonl").write_text(json.dumps(edit))

    [case] = sketch_cases(tmp_path / "commit_edits.jsonl")

    assert ("right", "") == run_case(case, "perfect")


def test_a_run_goes_on_where_it_ended(tmp_path):
    known = [Row("lossy", group, "1", "right", "") for group in ("mechanical", ALONE)]
    saved = tmp_path / "saved.jsonl"
    saved.write_text("".join(f"{json.dumps(vars(Row('perfect', 'traps', '1', each, '')))}\n" for each in ("right", "")))

    assert [] == list(all_rows([CASE], ["lossy"], known))
    ran = CliRunner().invoke(main, ["--only", "editeval", "--save", str(saved)])
    assert ran.output == f"{as_table([Row('perfect', 'traps', '1', 'right', '')])}\n"
    assert "| perfect | traps | 1 | 1 | 1 | 0 | 0 |" == ran.output.splitlines()[-1]
