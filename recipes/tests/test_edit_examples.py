"""Every edit matches its kind and parses before and after."""

import ast
import random

from recipes.edit_examples import MAKERS, SHARES, make_edit
from recipes.rename_edits import occurrences
from recipes.snippets import snippet_from, snippets_of
from tests.each_row import each_row

from .conftest import CODE


def edits_of(kind, code=CODE, tries=60):
    rng = random.Random(3)
    made = [make_edit(kind, snippet, rng) for _ in range(tries) for snippet in snippets_of(code, rng)]
    return [edit for edit in made if edit is not None]


@each_row("kind", MAKERS)
def test_edits_of_every_kind_change_the_text_and_parse(kind):
    edits = edits_of(kind)

    assert edits
    for edit in edits:
        assert edit.before != edit.after
        assert ast.dump(ast.parse(edit.before)) and ast.parse(edit.after)


def test_every_kind_has_a_share():
    assert MAKERS.keys() == SHARES.keys()


@each_row("kind", ["rename_local", "rename_parameter", "rename_function", "rename_class"])
def test_a_rename_replaces_all_occurrences_of_the_name_in_the_instruction(kind):
    for edit in edits_of(kind):
        gone = [name for name in snippet_from(edit.before).names if occurrences(edit.after, name) == 0]
        assert 1 == len(gone)
        assert occurrences(edit.instruction, gone[0]) >= 1
        new = [name for name in snippet_from(edit.after).names if occurrences(edit.before, name) == 0]
        assert occurrences(edit.before, gone[0]) == occurrences(edit.after, new[0])
        assert occurrences(edit.instruction, new[0]) >= 1


def test_a_name_that_is_also_in_a_string_is_not_renamed():
    code = 'def run(path):\n    print("path")\n    return path\n'

    assert not edits_of("rename_parameter", code)


def test_removed_prints_leave_none():
    assert not any("print(" in edit.after for edit in edits_of("remove_print"))
    assert all("print(" in edit.before for edit in edits_of("remove_print"))


def test_sorted_imports_are_the_same_imports_in_order():
    for edit in edits_of("sort_imports"):
        assert sorted(edit.before.splitlines()) == sorted(edit.after.splitlines())
        assert edit.after.index("import os") < edit.after.index("import sys")


def test_a_constant_changes_one_line_only():
    for edit in edits_of("constant"):
        pairs = zip(edit.before.splitlines(), edit.after.splitlines(), strict=True)
        assert 1 == sum(old != new for old, new in pairs)


def test_type_hints_are_added_and_nothing_else():
    for edit in edits_of("type_hints"):
        assert "count: int = 1" in edit.after
        assert "count=1" in edit.before


def test_the_same_seed_gives_the_same_edits():
    assert edits_of("rename_local") == edits_of("rename_local")
