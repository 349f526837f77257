"""What was learned stays: costs and acceptance on disk, and files that hold something else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specchat.chooser import learned_file as module
from specchat.chooser.acceptance import CountsKey, RankCounts
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.chooser.learned_file import LearnedFile, learned_file
from specchat.chooser.state import ChooserState
from specchat.engine.cache_sizes import bucket_of
from specchat.engine.drafter import AnswerTask
from specchat.engine.tree import DraftTree

IDENTITY = {"target": "tiny", "device": "here"}
KEY = CountsKey("draft", "chat", True)
DAY = 20_000


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_today", lambda: DAY)


def taught(accepted: int, rejected: int, *, is_private: bool = False) -> ChooserState:
    """After so many drafts of two tokens, of which the first one was accepted or not."""
    state, tree = ChooserState(), DraftTree(1)
    tree.add(2, tree.add(1, 0, "draft"), "draft")
    stats = state.candidate(KEY, 0.5, is_private=is_private)
    for last_accepted in [1] * accepted + [0] * rejected:
        stats.add_compared_tree(tree, last_accepted)
    return state


def stored(folder: Path, state: ChooserState | None = None) -> LearnedFile:
    file = learned_file(IDENTITY, folder)
    file.save(Costs({1024: Curve({1: 1.0, 16: 2.0})}), state or taught(6, 2))
    return file


def seconds(costs: Costs, max_rows: int) -> list[float] | None:
    """Measured or stored, confirmed or not."""
    return costs.pass_curves[bucket_of(100)].seconds_up_to(max_rows)


def first_counts(folder: Path) -> RankCounts | None:
    """What a new process starts with."""
    return learned_file(IDENTITY, folder).load()[1].earlier.get(KEY)


def test_a_second_start_loads_the_costs_of_the_first(tmp_path):
    file = learned_file(IDENTITY, tmp_path)
    costs, state = file.load()
    costs.learn_pass(100, 1, 0.5)
    costs.learn_draft("draft", 100, 4, 0.25)
    file.save(costs, state)

    again, _state = learned_file(IDENTITY, tmp_path).load()

    assert again.plain_seconds(100) == 0.5
    assert again.draft_curves["draft"][1024].seconds_at(4) == 0.25
    assert not learned_file({**IDENTITY, "device": "there"}, tmp_path).load()[0].pass_curves


def test_stored_costs_are_confirmed_in_steps(tmp_path):
    costs = Costs({1024: Curve({1: 1.0, 16: 2.0})})
    costs.learn_draft("draft", 100, 4, 0.25)
    file = learned_file(IDENTITY, tmp_path)
    file.save(costs, ChooserState())

    again, _state = file.load()

    assert seconds(again, 16) == seconds(costs, 16) == costs.trusted_pass_seconds(100, 16)
    assert again.trusted_pass_seconds(100, 16) == seconds(again, 1)
    assert again.draft_curve("draft", 100).is_unconfirmed
    again.learn_pass(100, 1, 1.0)
    again.learn_draft("draft", 100, 4, 0.25)
    assert len(again.trusted_pass_seconds(100, 16) or ()) == 5
    assert not again.draft_curve("draft", 100).is_unconfirmed


def test_an_unmeasured_length_is_unconfirmed_if_its_neighbour_is(tmp_path):
    again, _state = stored(tmp_path).load()

    again.learn_pass(3000, 1, 3.0)

    assert len(again.trusted_pass_seconds(3000, 16) or ()) == 2
    again.learn_pass(3000, 1, 3.0)
    assert again.plain_seconds(3000) == pytest.approx(3.0)
    assert again.plain_seconds(100) == 1.0


def test_calibrated_costs_are_confirmed(tmp_path):
    again, _state = stored(tmp_path).load()

    for width in (1, 4, 16):
        again.pass_curves[1024].set_point(width, 2.0)

    assert again.trusted_pass_seconds(100, 16) == seconds(again, 16)


def test_a_second_start_expects_what_the_first_has_learned(tmp_path):
    stored(tmp_path)

    counts = first_counts(tmp_path)

    assert counts is not None
    assert counts.trials[0] == pytest.approx(4.0)
    assert counts.accepted[0] / counts.trials[0] == pytest.approx(6 / 8, abs=0.03)


def test_old_counts_count_less_and_days_to_come_count_as_today(tmp_path, monkeypatch):
    def weight_on(day: int) -> float:
        monkeypatch.setattr(module, "_today", lambda: day)
        counts = first_counts(tmp_path)
        return counts.trials[0] if counts else 0.0

    stored(tmp_path, taught(60, 20))

    assert weight_on(DAY - 9000) == pytest.approx(4.0)
    assert 1.0 < weight_on(DAY + 150) < 2.0
    assert weight_on(DAY + 10**6) < 1e-9


def test_a_private_conversation_teaches_nothing_on_disk(tmp_path):
    stored(tmp_path, taught(6, 2, is_private=True))

    assert first_counts(tmp_path) is None
    assert AnswerTask().is_private


def test_counts_of_several_processes_add_up_and_other_drafters_keep_theirs(tmp_path):
    stored(tmp_path)
    file = learned_file(IDENTITY, tmp_path)
    costs, state = file.load()
    other = CountsKey("head", "code", False)
    state.candidate(other, 0.5).add_compared_tree(_one(), 1)
    file.save(costs, state)

    _costs, again = learned_file(IDENTITY, tmp_path).load()

    assert set(again.earlier) == {KEY, other}


def _one() -> DraftTree:
    tree = DraftTree(1)
    tree.add(1, 0, "head")
    return tree


def test_counts_that_own_drafts_contradict_are_dropped_and_stored_no_more(tmp_path):
    stored(tmp_path, taught(40, 0))
    file = learned_file(IDENTITY, tmp_path)
    costs, state = file.load()
    stats = state.candidate(KEY, 0.5)

    for _ in range(3):
        stats.add_compared_tree(_one(), 0)
    file.save(costs, state)
    counts = first_counts(tmp_path)

    assert stats.earlier is None
    assert counts is not None
    assert counts.accepted[0] == 0


def test_no_more_than_a_bounded_number_of_counts_is_stored(tmp_path):
    state = ChooserState()
    for number in range(500):
        state.candidate(CountsKey(f"plugin-{number}", "chat", False), 0.5).add_compared_tree(_one(), 1)

    file = stored(tmp_path, state)

    assert len(file.load()[1].earlier) == module.MAX_KEYS
    assert file.path.stat().st_size < 20_000


def acceptance_of(content: dict[str, Any], **change: object) -> str:
    rows = content["acceptance"]
    return json.dumps({**content, "acceptance": [{**rows[0], **change}]})


BROKEN: dict[str, Callable[[dict[str, Any]], str]] = {
    "empty": lambda _: "",
    "cut off": lambda _: "{",
    "a list": lambda _: "[]",
    "deep": lambda _: "[" * 100_000,
    "another machine": lambda content: json.dumps({**content, "identity": {"device": "there"}}),
    "negative seconds": lambda content: json.dumps({**content, "passes": {"1024": {"1": -1}}}),
    "NaN seconds": lambda content: json.dumps({**content, "passes": {"1024": {"1": float("nan")}}}),
    "no bucket": lambda content: json.dumps({**content, "passes": {"a": {}}}),
    "huge": lambda content: json.dumps({**content, "more": "x" * 2**20}),
}
BROKEN_COUNTS: dict[str, dict[str, object]] = {
    "NaN": {"ranks": [[float("nan"), 1, 1]]},
    "endless": {"ranks": [[float("inf"), 1, 1]]},
    "negative": {"ranks": [[4, -1, 1]]},
    "more accepted than compared": {"ranks": [[4, 5, 1]]},
    "texts": {"ranks": ["abc"]},
    "huge number": {"ranks": [[10**400, 1, 1]]},
    "never compared": {"ranks": [[0, 0, 1]]},
    "no ranks": {"ranks": []},
    "no rows": {"ranks": 5},
    "a list as a name": {"drafter": ["x"]},
    "no day": {"day": "yesterday"},
    "NaN day": {"day": float("nan")},
}


def test_a_broken_file_is_ignored_with_one_line_and_written_anew(tmp_path):
    faults, content = [], json.loads(stored(tmp_path).path.read_text())
    for name, text in [
        *((name, make(content)) for name, make in BROKEN.items()),
        *((name, acceptance_of(content, **change)) for name, change in BROKEN_COUNTS.items()),
    ]:
        file = learned_file(IDENTITY, tmp_path)
        file.path.write_text(text)
        costs, state = file.load()
        keeps_costs = bool(costs.pass_curves)
        if state.earlier or "\n" in file.fault or str(file.path) not in file.fault or len(file.fault) > 300:
            faults.append((name, file.fault))
        if keeps_costs != (name in BROKEN_COUNTS):
            faults.append((name, f"costs: {keeps_costs}"))
        stored(tmp_path)
        if first_counts(tmp_path) is None:
            faults.append((name, "not written anew"))

    assert not faults


def test_what_is_no_file_is_ignored_with_one_line(tmp_path):
    def link(path: Path) -> None:
        path.symlink_to("/dev/zero")

    faults = []
    for number, put in enumerate([Path.mkdir, link, os.mkfifo]):
        folder = tmp_path / str(number)
        file = learned_file(IDENTITY, folder)
        file.path.parent.mkdir(parents=True)
        put(file.path)
        costs, state = file.load()
        if costs.pass_curves or state.earlier or "no regular file" not in file.fault:
            faults.append((put, file.fault))
        stored(folder)

    assert not faults


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "costs").write_text("a file, no folder")

    file = stored(tmp_path)

    assert not file.load()[0].pass_curves
