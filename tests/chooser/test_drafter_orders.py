"""The order in which `auto` tries drafters: a wrong beginning costs next to nothing."""

from __future__ import annotations

from functools import lru_cache
from itertools import cycle, permutations, product
from pathlib import Path

import pytest

from specchat.chooser.curve import Curve
from specchat.engine.cache_sizes import bucket_of
from specchat.engine.drafter import AnswerTask
from tests.each_row import each_row
from tools.replay_chooser import ReplayedStep, Replayer, Trace, cpu_like_costs, read_traces, seconds_per_token

TRACES = Path(__file__).parent / "traces"
BUDGET = 32


@lru_cache
def answers() -> dict[str, list[Trace]]:
    """Recorded answers by kind."""
    groups: dict[str, list[Trace]] = {}
    for trace in read_traces(TRACES):
        groups.setdefault(trace.kind, []).append(trace)
    return groups


@pytest.mark.full
@each_row("slower", [1.0, 2.0])
def test_a_wrong_order_and_a_wrong_cost_are_nearly_free(slower):
    """Law 3, where a draft never pays: with every order, and a draft that has become `slower` than its stored cost."""
    table = cpu_like_costs("steep-dear-draft", 0.1, draft=1.1, lookup=0.01)
    plain_seconds, slow = table.pass_seconds_by_rows[1], list[tuple[tuple[str, ...], str, float]]()
    for order, (kind, traces) in product(permutations(("suffix", "eagle3", "plain")), answers().items()):
        player, steps = Replayer(table, BUDGET), list[ReplayedStep]()
        once, each = table.draft_costs["eagle3"]
        measured_then = Curve({1: (once + each) / slower, 4: (once + 4 * each) / slower}, slope=1)
        player.chooser.costs.draft_curves["eagle3"] = {bucket_of(1): measured_then}
        for trace in cycle(traces):
            player.chooser.start_answer(AnswerTask(trace.kind, order))
            steps += player.replay(trace)
            if len(steps) >= 500:
                break
        if seconds_per_token(steps) > 1.03 * plain_seconds:
            slow.append((order, kind, seconds_per_token(steps) / plain_seconds))
    assert slow == []
