"""How often a model loops: the questions, and a table with a line for each setting."""

from __future__ import annotations

from tools.instrument import run_instrument
from tools.loop_rates import SETTINGS, loop_rates, questions


def test_sixty_questions_are_all_different():
    assert len(set(questions(60))) == 60


def test_the_table_has_a_line_for_each_setting(capsys):
    assert run_instrument(loop_rates, ["--target", "embedded", "--count", "1", "--limit", "6"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == list(SETTINGS)
