"""`python -m tools.loop_speed`: calls and answers after results have rows beside plain decoding, with equal texts."""

from __future__ import annotations

import pytest

from specchat.chat.tools import NO_TOOL
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_bench.combinations import Grid
from tests.tiny import speaking
from tools import loop_speed
from tools.instrument import run_instrument
from tools.loop_check import AgentLoop, LoopTurn
from tools.loop_speed import measure_loops

LOOP = AgentLoop(3, (LoopTurn("Read shop.py."), LoopTurn(), LoopTurn("And settings.toml?"), LoopTurn("So?", NO_TOOL)))


@pytest.fixture
def one_loop(monkeypatch):
    monkeypatch.setattr(loop_speed, "make_loops", lambda count: [LOOP] * count)


def test_each_question_gives_a_call_and_an_answer_of_every_combination(one_loop):
    models = {"models.target": str(speaking()), "models.heads": (), "models.draft": "", "limits.context": 4096}
    engine, labels = load_engine(Profile().override(models)), list[str]()
    grid = Grid(("suffix", "auto"), temperatures=(0.8,), max_tokens=80)

    samples = list(measure_loops(engine, grid, 1, labels.append))

    assert labels == ["temperature 0.8, loop 1 of 1"]
    found = sorted((each.combination.kind, each.combination.drafter) for each in samples)
    kinds = ("tool_call", "tool_result")
    assert found == sorted(2 * [(kind, name) for kind in kinds for name in ("plain", "suffix", "auto")])
    assert all(each.is_same_text and each.tokens == each.plain_tokens for each in samples)
    calls = [each for each in samples if each.combination.kind == "tool_call"]
    assert all(each.forced_tokens > 0 for each in calls if each.combination.drafter != "plain")


def test_the_command_prints_a_row_for_each_kind_and_drafter(one_loop, capsys):
    words = ["--target", str(speaking()), "--drafters", "suffix,mtp", "--temperatures", "0"]

    assert run_instrument(loop_speed.loops, [*words, "--count", "1", "--limit", "70"]) == 0

    out, err = capsys.readouterr()
    assert "| tool_call | 0 | plain |" in out and "| tool_call | 0 | suffix |" in out
    assert "| tool_result | 0 | suffix |" in out
    assert "mtp" in err and "mtp" not in out
