"""The comparison of shown and true speedups: its arithmetic, and that it leaves no load behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specchat.bench.latency import TimedAnswer
from specchat.chat.events import Totals
from tools.speedup_under_load import Comparison, LoadChange, as_table, burners, summary


def answer(decode_seconds: float, plain_seconds: float, error: float = 0.05, drafted: int = 0) -> TimedAnswer:
    totals = Totals(
        completion_tokens=20, steps=10, draft_tokens=drafted, verify_seconds=decode_seconds,
        plain_decode_seconds=plain_seconds, plain_decode_error=error,
    )  # fmt: skip
    return TimedAnswer("text", (), totals, 0.0, (), decode_seconds)


def comparison(shown: float, error: float = 0.05) -> Comparison:
    """Plain decoding takes 2 s, the drafted answer 1 s."""
    plain = answer(1.9, 1.9), answer(2.1, 2.1)
    return Comparison(plain[0], answer(1.0, shown, error, drafted=8), plain[1], LoadChange(5, starts=True))


@pytest.mark.parametrize(
    ("shown", "error", "is_right"), [(2.2, 0.05, True), (2.4, 0.05, False), (2.4, 0.2, True), (4.0, 0.2, False)]
)
def test_a_factor_is_right_within_fifteen_percent_of_the_truth(shown, error, is_right):
    assert comparison(shown, error).true_factor == pytest.approx(2.0)
    assert comparison(shown, error).is_right is is_right


def test_the_table_and_the_summary_count_the_answers():
    compared = [comparison(2.2), comparison(2.4), comparison(2.4, 0.2), comparison(2.0, 0.9)]

    assert "| on | 5 | 20 | 10 | 2.0-2.9 | 2.00 | 1.11 | yes |" in as_table(compared)
    assert summary(compared).splitlines()[0] == "right: 2 of 3 shown factors, 1 of 2 single numbers"
    assert "without a factor: 1" in summary(compared)


def test_burners_run_only_while_they_are_switched_on_and_end_with_the_block():
    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    with burners(1) as load:
        [process] = load.processes
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert state(process.pid) == "T"
        load.switch(is_on=True)
        assert state(process.pid) in "RS"

    assert process.poll() is not None
