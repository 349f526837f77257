"""Edits of commits, replayed without a model."""

import json

from click.testing import CliRunner

from specchat.engine.drafter import Drafter
from tests.each_row import each_row
from tools.move_method import move_method
from tools.replay_edits import DRAFTER_BY_NAME, TokenizedEdit, main, replay

EDIT = TokenizedEdit(prompt=[1, 2, *range(10, 90)], reference=[*range(10, 50), 5, *range(51, 90)])


def test_plain_decoding_yields_one_token_a_pass():
    assert replay(Drafter(), EDIT, budget=8).tokens_per_step == 1


@each_row("name", DRAFTER_BY_NAME)
def test_a_copied_file_yields_many(name):
    result = replay(DRAFTER_BY_NAME[name](), EDIT, budget=8)

    assert result.tokens_per_step > 4
    assert result.draft_tokens_per_step <= 8


def test_the_table_has_a_row_for_each_drafter_and_budget(tmp_path):
    before = "".join(f"value_{line} = {line}\n" for line in range(30))
    row = {"instruction": "Rename it", "path": "a.py", "before": before, "after": before.replace("value_9", "nine")}
    (tmp_path / "edits.jsonl").write_text(json.dumps(row))

    shown = CliRunner().invoke(main, ["--prompts", str(tmp_path / "edits.jsonl"), "--budgets", "4,8"])

    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("1 edits")
    assert (
        sum(line.startswith(tuple(f"| {name} | " for name in DRAFTER_BY_NAME)) for line in shown.output.splitlines())
        == 4
    )


CLASS = """\
class Box:
    @property
    def size(self):
        return self.count() + self.count( )

    def count(self, step=1):
        return step

    def again(self):
        return self.count(2)
"""


def test_a_method_is_moved_out_of_its_class_and_called_as_a_function():
    moved = move_method("# Refactor Box.count\n\nRefactor the method", CLASS)

    assert moved is not None
    assert moved.endswith("\n\n\ndef count(self, step=1):\n    return step\n")
    assert "return count(self) + count(self)" in moved
    assert "return count(self, 2)" in moved


def test_what_is_no_such_refactoring_has_no_result():
    assert move_method("# Refactor Box.absent", CLASS) is None
    assert move_method("Refactor it", CLASS) is None
