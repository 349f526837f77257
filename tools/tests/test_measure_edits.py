"""What becomes of an edit, measured with front ends that need no model."""

from __future__ import annotations

import json
from pathlib import Path

from tests.each_row import each_row
from tools.measure_edits import MeasuredCase, Outcome, as_table, editeval_cases, measure, mechanical_cases

OLD, NEW = "def add(a):\n    return a\n", "def add(a):\n    return a + 1\n"
CASE = MeasuredCase("editeval", "E/1", OLD, "add one", lambda text: text == NEW)


def after(text: str, *, is_failure: bool = False):
    """A front end that leaves this text."""
    return lambda _case, _folder: Outcome(text, is_failure, "reason")


@each_row(
    "make_edit, columns",
    [
        (after(NEW), (1, 1, 0, 0, 0)),
        (after(OLD, is_failure=True), (0, 0, 1, 0, 0)),
        (after("def add(a):\n    return 2\n"), (1, 0, 0, 1, 0)),
        (after("You can add one.\n"), (1, 0, 0, 1, 1)),
        (after("", is_failure=True), (0, 0, 0, 0, 0)),
        (after(OLD), (0, 0, 0, 0, 0)),
    ],
)
def test_an_edit_is_taken_right_refused_or_wrong(make_edit, columns):
    result, _outcome = measure(CASE, make_edit)

    row = as_table({("file", "editeval"): [result]}).splitlines()[-1]
    assert [f" {number} " for number in (1, *columns)] == row.split("|")[3:-1]


def test_a_front_end_finds_the_file_in_a_folder_of_its_own():
    found = list[str]()

    def look(_case: MeasuredCase, folder: Path) -> Outcome:
        found.extend(f"{file.name}: {file.read_text()}" for file in folder.iterdir())
        return Outcome(OLD, is_failure=True, reason="")

    measure(CASE, look)

    assert [f"code.py: {OLD}"] == found


def test_the_tests_of_editeval_decide(tmp_path):
    row = {
        "id": "E/1", "before": OLD.rstrip(), "instruction": "add one", "context": "one = 1\n{{Code}}", "ref_ok": True,
        "test": "def check():\n    assert add(2) == 2 + one",
    }  # fmt: skip
    path = tmp_path / "editeval.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in (row, {**row, "id": "E/2", "ref_ok": False})))

    (case,) = editeval_cases(path, 5, seed=1)

    assert OLD == case.text
    assert [True, False, False] == [case.is_right(text) for text in (NEW, OLD, "not Python")]


def test_mechanical_edits_are_of_many_kinds(tmp_path):
    code = "import os\nimport re\nimport sys\n\nLIMIT = 3\n\n\ndef add(a, b=2):\n    # sum\n    return a\n"
    (tmp_path / "a.py").write_text(code)

    cases = mechanical_cases(tmp_path, 4, seed=1)

    assert 4 == len({case.kind for case in cases}) == len(cases)
    assert not any(case.is_right(case.text) for case in cases)
