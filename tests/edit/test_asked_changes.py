"""What an instruction lets change: an operation says it where there is one, and words elsewhere."""

from __future__ import annotations

from typing import get_args

from specchat.edit.asked_changes import OF_OPERATIONS, AskedChanges, May, Only
from specchat.edit.contract import find_warnings, keep_contract
from specchat.edit.operations import Move, Operation, Removable, Remove, Rename, SetValue, SortImports
from specchat.edit.source_text import make_source

CODE = """\
import os
import json

LIMIT = 3


def work(xs):
    found = json.loads(xs)
    found = sorted(found)
    count = len(found)
    print(count)
    return found[:LIMIT]


work(os.name)
"""
LOST = "    found = sorted(found)\n"
OPERATIONS: list[tuple[Operation, str, str]] = [  # with what each one replaces
    (SortImports(), "import os\nimport json\n", "import json\nimport os\n"),
    (SetValue("LIMIT", "5"), "LIMIT = 3", "LIMIT = 5"),
    (Remove(Removable.PRINTS), "    print(count)\n", ""),
]


def may_of(instruction: str) -> May:
    return AskedChanges.of(instruction, CODE).may


def test_every_operation_says_what_may_change():
    assert {*get_args(Operation)} == {*OF_OPERATIONS}


def test_names_in_an_operation_are_no_verbs():
    assert May.RENAME | May.REARRANGE == may_of("rename work to simplify_new_class")
    assert May.SET | May.SET_VALUE == may_of("set LIMIT to 'without comments'")
    assert May.LOSE == may_of("remove the calls to print in work")
    assert May.DEFINE in may_of("make work write new files")


def test_one_kind_of_change_is_known_from_an_operation_and_from_words():
    only = {
        text: AskedChanges.of(text, CODE).only for text in ("remove the comments", "write comments", "add type hints")
    }

    assert {"remove the comments": Only.COMMENTS, "write comments": Only.COMMENTS, "add type hints": Only.TYPES} == only
    assert Rename("work", "run") == AskedChanges.of("please rename work to run", CODE).only
    assert AskedChanges.of("rename work to run and add a test", CODE).only is None


def test_an_operation_lets_nothing_else_go_where_its_words_did():
    source, wrong = make_source(CODE.encode(), "a.py"), list[str]()
    for operation, old, new in OPERATIONS:
        right = CODE.replace(old, new)
        lossy = right.replace(LOST, "")
        if found := find_warnings(source, right, operation).summary:
            wrong.append(f"{operation}: {found}")
        if "`found = sorted(found)` would be lost" not in find_warnings(source, lossy, operation).summary:
            wrong.append(f"{operation}: nothing said")
        if keep_contract(source, lossy, str(operation)).text != right:
            wrong.append(f"{operation}: not put back")

    assert not wrong, "\n".join(wrong)


def test_a_moved_definition_may_stand_elsewhere_and_not_be_lost():
    text = "def f():\n    return 1\n\n\ndef g():\n    return 2\n\n\nclass C:\n    pass\n"
    f, g, rest = text.split("\n\n\n")
    source, move = make_source(text.encode(), "a.py"), Move("g", "f")

    assert not find_warnings(source, f"{g}\n\n\n{f}\n\n\n{rest}", move).worst_problem
    assert "line 5" in find_warnings(source, f"{f}\n\n\n{rest}", move).summary
