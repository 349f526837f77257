"""The contract of the front ends breaks where it should; `lint-imports` in .ci/run holds all of them."""

from __future__ import annotations

from pathlib import Path

from tests.planted_imports import broken_imports, edges

PLANTED = {
    "cli/chat.py": "specchat.edit.undo_store",
    "repl/loop.py": "specchat.hub.catalog",
    "tui/app.py": "specchat.history.history_writer",
}


def test_a_front_end_that_imports_below_the_verbs_breaks_the_contract(tmp_path):
    package = Path(__file__).parents[1] / "specchat"

    assert edges(package, PLANTED) == broken_imports(package, PLANTED, tmp_path)
