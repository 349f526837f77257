"""`python -m tools.loop_check`: loops are the same everywhere, have all that they promise, and show a planted fault."""

from __future__ import annotations

import json

import pytest

from specchat.chat.tools import NO_TOOL
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from tests.tiny import speaking
from tools import loop_check
from tools.loop_check import FILES, LONG_LOOP_TURNS, AgentLoop, LoopTurn, as_text, make_loops, play, verify_loops


@pytest.fixture(scope="module")
def engine() -> Engine:
    models = {"models.target": str(speaking()), "models.heads": (), "models.draft": "", "limits.context": 4096}
    return load_engine(Profile().override(models))


def test_the_series_is_fixed_and_has_long_cut_and_repeated_loops():
    loops = make_loops(50)

    assert loops[:7] == make_loops(7)
    assert sum(len(loop.turns) >= LONG_LOOP_TURNS for loop in loops) >= 5
    assert any(turn.max_tokens == loop_check.CUT_TOKENS for loop in loops for turn in loop.turns)
    assert any(turn.is_again for loop in loops for turn in loop.turns)
    assert all(loop.turns[-1].tool_choice == NO_TOOL for loop in loops)


def test_calls_are_those_of_plain_decoding_and_results_follow_from_them(engine):
    loop = AgentLoop(3, (LoopTurn("Read shop.py."), LoopTurn(), LoopTurn("And settings.toml?", is_again=True)))

    plain = play(engine, loop, "plain", 0.8)

    assert plain == play(engine, loop, "suffix", 0.8)
    assert all(json.loads(arguments) and name for turn in plain for name, arguments in turn.calls)
    assert [len(turn.calls) for turn in plain] == [1, 1, 1]


def test_an_edit_changes_the_files_of_its_own_play_only():
    files = dict(FILES)
    edit = loop_check.ToolCall("1", "edit", '{"path": "settings.toml", "line": 1, "new_text": "x = 1"}')

    [result] = loop_check.results_for([edit], files)

    assert result.text.startswith("x = 1\ncurrency")
    assert files["settings.toml"] != FILES["settings.toml"]
    broken = loop_check.ToolCall("2", "edit", '{"path": ')
    assert loop_check.results_for([broken], files)[0].is_error


def test_a_changed_call_is_reported_with_its_place(engine, monkeypatch):
    loop = AgentLoop(1, (LoopTurn("Read shop.py."), LoopTurn("Sum up.", NO_TOOL, max_tokens=8)))
    monkeypatch.setattr(loop_check, "make_loops", lambda _count: [loop])
    played = loop_check.play

    def faulty(engine, loop, variant, temperature):
        turns = played(engine, loop, "plain", temperature)
        return turns if variant != "suffix" else [turns[0], loop_check.PlayedTurn("other", ())]

    monkeypatch.setattr(loop_check, "play", faulty)

    report = verify_loops(engine, ("suffix", "lookup", "eagle3"), 1)

    assert not report.is_lossless
    assert "| suffix | 0 | 0 of 1 | 1 of 2 | 1 of 1 | loop 1, turn 2 |" in as_text(report)
    assert "| lookup | 0 | 1 of 1 | 2 of 2 | 1 of 1 |  |" in as_text(report)
    assert "| eagle3 | 0.8 | not with these models |" in as_text(report)
