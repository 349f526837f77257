"""Every row of the tables in docs/screens.md names existing tests, or is in the short list of missing ones."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.each_row import each_row

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "screens.md"
SECTIONS = {
    "The main screen", "The status bar", "The inspector", "Editing files", "The line mode, and editors",
    "The command line", "First run, doctor, download", "Profiles",
}  # fmt: skip
NAMED = re.compile(r"`((?:tools/|plugins/[\w-]+/)?tests/[\w/]+\.py)::(test_\w+)`")
NOT_BUILT = {
    "A multi-line text in named braces",
    "Probabilities of a token and of its draft",
}


def rows() -> list[tuple[str, str, str]]:
    """The section, the promise and its tests."""
    found, section = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "promise":
            assert len(cells) == 2, f"no promise and test: {line}"
            found.append((section, *cells))
    return found


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8")) if (ROOT / path).exists() else ast.Module([], [])
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def fault(shown_by: str) -> str:
    """The fault of the second cell of a row, or an empty text."""
    if shown_by.startswith("not built: ") and len(shown_by) > len("not built: because"):
        return ""
    named = NAMED.findall(shown_by)
    if ", ".join(f"`{path}::{name}`" for path, name in named) != shown_by or not named:
        return f"names no test: {shown_by}"
    return ", ".join(f"{path} has no {name}" for path, name in named if name not in names_in(path))


def test_every_promise_names_a_test():
    faults = {promise: fault(shown_by) for _, promise, shown_by in rows()}
    assert not {promise: fault for promise, fault in faults.items() if fault}


def test_every_section_promises_something():
    assert {section for section, _, _ in rows()} == SECTIONS


def test_what_is_missing_is_a_short_list_that_everybody_can_see():
    assert {promise for _, promise, shown_by in rows() if shown_by.startswith("not built")} == NOT_BUILT


@each_row(
    "cell",
    [
        "",
        "not built",
        "not built: ",
        "a test somewhere",
        "`tests/test_screens.py::test_of_something_else`",
        "`tests/test_nowhere.py::test_every_promise_names_a_test`",
        "`tests/test_screens.py::test_every_section_promises_something`, and others",
    ],
)
def test_a_row_that_shows_nothing_is_a_fault(cell):
    assert fault(cell)


def test_a_row_that_names_this_test_is_fine():
    assert not fault("`tests/test_screens.py::test_a_row_that_names_this_test_is_fine`")
