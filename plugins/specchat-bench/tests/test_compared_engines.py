"""Measuring: what is read, what is compared, what is drawn."""

import pytest

from specchat.chat.request import Request
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_bench.compared_engines import (
    Comparison,
    PairedRuns,
    PeerBench,
    as_table,
    compare,
    cut_or_repeat,
)
from specchat_bench.llama_cpp import TimedRun
from specchat_bench.tokenized_prompts import tokenize_prompts
from tests.tiny import speaking


def test_the_ratio_is_theirs_by_ours_for_each_token():
    fast, slow = TimedRun([1, 2], 1, 1.0), TimedRun([1, 2, 3, 4], 0, 6.0)

    pair = PairedRuns((fast, fast), (slow, slow))

    assert pair.speedup == pytest.approx(3.0)
    assert not pair.is_identical


def test_a_prompt_is_cut_or_repeated_to_a_length():
    assert [cut_or_repeat([1, 2, 3], count) for count in (2, 3, 7)] == [[1, 2], [1, 2, 3], [1, 2, 3, 1, 2, 3, 1]]


def test_contenders_take_turns():
    heard: list[str] = []

    def contender(name: str):
        return lambda prompt, _limit: heard.append(name) or TimedRun(prompt, 1, 1.0)

    [pair] = compare(contender("a"), contender("b"), [[1, 2]], max_tokens=5)

    assert heard == ["a", "b", "a", "b", "b", "a"]  # once each to warm up
    assert pair.is_identical


def test_the_table_has_the_middle_and_the_ends():
    pairs = [
        PairedRuns((TimedRun([1], 1, s), TimedRun([1], 1, s)), (TimedRun([1], 0, 6.0), TimedRun([1], 0, 6.0)))
        for s in (1.0, 2.0, 6.0)
    ]

    assert "| x | 3.00 | 1.00 | 6.00 | 1.00 | 3 of 3 |" in as_table([Comparison("x", tuple(pairs))])


def test_both_engines_write_the_same_text():
    profile = Profile().override({"models.target": str(speaking()), "models.draft": str(speaking(layers=1, seed=2))})
    engine = load_engine(profile.override({"limits.context": 512, "limits.answer": 100}))
    requests = tuple(Request(text) for text in ("ab", "cd"))
    prompts = tuple(prompt.token_ids for prompt in tokenize_prompts(engine, iter(requests), 2, 20))

    rows = list(PeerBench(engine, prompts, 12, requests=requests).rows(print))

    assert [row.identical_prompts for row in rows] == [2] * 8
    assert "auto / generate" in [row.name for row in rows]
    assert all(row.tokens_per_step >= 1 for row in rows)


def test_only_the_rows_that_are_asked_for_are_measured():
    engine = load_engine(Profile().override({"models.target": str(speaking()), "models.draft": ""}))

    rows = list(PeerBench(engine, ([1, 68, 69, 0, 2],), max_tokens=4, name_filter="our plain").rows(print))

    assert ["lookup / our plain"] == [row.name for row in rows]
