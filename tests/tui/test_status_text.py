"""The status line as text: the same statistics at three widths and in ASCII, and every state."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import (
    CommittedToken,
    Failed,
    Finished,
    LoadingProgress,
    PrefillProgress,
    Routed,
    Speedup,
    StepDone,
    TextDelta,
    Totals,
    Waiting,
)
from specchat.drawing.glyphs import ASCII, UNICODE
from specchat.tui.live_stats import WINDOW_STEPS, AcceptanceShares, LiveStats, Phase, Progress, StatsSnapshot
from specchat.tui.status_bar import GIGABYTE, acceptance_bar, status_line
from tests.each_row import each_row

MEMORY = int(17.2 * GIGABYTE)
WRITING = StatsSnapshot(
    Phase.DECODE, model="starter", variant="auto", drafter="ngram", draft_tokens=8,
    acceptance_rate=0.82, session_acceptance_rate=0.74,
    tokens_per_step=6.5, tokens_per_second=142.3, speedup=Speedup(2.7), ttft_seconds=0.2,
    context_tokens=3123, context_window=32768, memory_bytes=MEMORY,
    acceptance=AcceptanceShares(accepted=0.7, rejected=0.2),
)  # fmt: skip
READING = StatsSnapshot(
    Phase.WAITING, Progress("", "reading 5,400 tokens: 38 %", 1.1), True, context_tokens=5400,
    context_window=32768, memory_bytes=MEMORY,
)  # fmt: skip
LOADING = StatsSnapshot(Phase.WAITING, Progress("", "loading the target model: 45 %", 12.4))
PAUSED = replace(WRITING, is_speculation_paused=True, speedup=Speedup(0.9), tokens_per_second=51.0)
STARTING = StatsSnapshot(Phase.WAITING, Progress("", "starting the engine", 3.2))
BRIEF = "starter · 142 tokens/s · 2.7x faster · accepted 82 % · █████░░·"
DETAILED = (
    "auto▸ngram · 8 draft tokens · 6.5 tokens/step · context 3.1k/32k · first token 0.2 s · memory 17.2G"
    " · accepted 74 % in all"
)


@each_row(
    "stats, columns, glyphs, line",
    [
        (WRITING, 80, UNICODE, BRIEF),
        (WRITING, 60, UNICODE, "starter · 142 tokens/s · 2.7x faster · accepted 82 %"),
        (WRITING, 40, UNICODE, "starter · 142 tokens/s · 2.7x faster"),
        (WRITING, 100, ASCII, "starter - 142 tokens/s - 2.7x faster - accepted 82 % - #####xx."),
        (READING, 100, UNICODE, "reading 5,400 tokens: 38 % · Esc stops · 1 s"),
        (READING, 40, UNICODE, "reading 5,400 tokens: 38 % · Esc stops"),
        (READING, 100, ASCII, "reading 5,400 tokens: 38 % - Esc stops - 1 s"),
        (PAUSED, 100, UNICODE, "starter · 51 tokens/s · drafts paused: they do not pay here"),
        (LOADING, 100, UNICODE, "loading the target model: 45 % · 12 s"),
        (replace(LOADING, is_answering=True), 40, UNICODE, "loading the target model: 45 %"),
        (replace(STARTING, is_answering=True), 40, UNICODE, "starting the engine · Esc stops · 3 s"),
        (STARTING, 100, UNICODE, "starting the engine · 3 s"),
        (StatsSnapshot(model="starter", context_window=8192), 100, UNICODE, "starter · ready"),
        (replace(WRITING, model=""), 10, UNICODE, "auto"),
    ],
)  # fmt: skip
def test_the_line_is_exactly_as_documented(stats, columns, glyphs, line):
    assert line == status_line(stats, columns, glyphs)


def test_the_line_of_the_other_numbers_is_exactly_as_documented():
    assert status_line(WRITING, 140, is_detailed=True) == DETAILED
    assert status_line(WRITING, 60, is_detailed=True) == "auto▸ngram · 8 draft tokens · 6.5 tokens/step"
    assert status_line(READING, 100, is_detailed=True) == status_line(READING, 100)


@each_row(
    "accepted, rejected, bar",
    [
        (1.0, 0.0, "████████"), (0.0, 1.0, "░░░░░░░░"), (0.0, 0.0, "········"), (0.5, 0.25, "████░░··"),
        (0.02, 0.49, "█░░░····"), (0.98, 0.01, "██████░·"),
    ],
)  # fmt: skip
def test_the_acceptance_bar_has_a_shape_for_each_part_and_hides_none(accepted, rejected, bar):
    assert acceptance_bar(AcceptanceShares(accepted, rejected), UNICODE) == bar
    assert acceptance_bar(AcceptanceShares(accepted, rejected), ASCII) == bar.translate(str.maketrans("█░·", "#x."))


def test_slower_than_plain_is_marked_with_a_word():
    assert "0.9x, slower" in status_line(replace(WRITING, speedup=Speedup(0.93)), 100)


def test_an_estimate_is_marked():
    assert "142 tokens/s · ~2.7x faster" in status_line(replace(WRITING, is_speedup_estimated=True), 100)


def test_a_context_that_is_nearly_full_is_a_warning_before_the_numbers():
    full = replace(WRITING, context_tokens=30_123)

    assert status_line(full, 100).startswith("starter · context 92 % full · 142 tokens/s")
    assert "context" not in status_line(replace(WRITING, context_tokens=25_000), 100)


def test_little_memory_is_in_megabytes():
    assert " · memory 25M · " in status_line(replace(WRITING, memory_bytes=25 * 2**20), 140, is_detailed=True)


@given(
    columns=st.integers(1, 200),
    stats=st.sampled_from([WRITING, READING, LOADING, PAUSED, STARTING, StatsSnapshot()]),
)
def test_the_line_never_overflows(columns, stats):
    for glyphs, is_detailed in product((UNICODE, ASCII), (False, True)):
        assert cell_len(status_line(stats, columns, glyphs, is_detailed=is_detailed)) <= columns


@given(st.sampled_from([WRITING, READING, LOADING, PAUSED, STARTING, StatsSnapshot()]), st.integers(1, 200))
def test_ascii_is_ascii(stats, columns):
    assert all(status_line(stats, columns, ASCII, is_detailed=each).isascii() for each in (False, True))


def step(drafted: int, accepted: int, seconds: float = 0.01, source: str = "lookup") -> StepDone:
    committed = (
        *(CommittedToken(token, b"a", source) for token in range(accepted)), CommittedToken(99, b"b", "target")
    )  # fmt: skip
    return StepDone(tuple(range(drafted)), tuple(range(drafted)), committed, 0.0, seconds)


def live_stats_after(*events) -> LiveStats:
    live_stats = LiveStats(context_window=8192)
    live_stats.start_turn(0.0)
    for number, event in enumerate(events):
        live_stats.on_event(event, 0.1 * (number + 1))
    return live_stats


AUTO = Routed("auto", 16, "repeats are copied", 7)


def test_the_numbers_are_sums_over_steps():
    stats = live_stats_after(PrefillProgress(100, 100), AUTO, step(8, 6), step(8, 2), step(0, 0)).snapshot(1.0)

    assert ("auto", "lookup", 0) == (stats.variant, stats.drafter, stats.draft_tokens)
    assert 0.8 == stats.acceptance_rate == stats.session_acceptance_rate  # 8 of the 7 + 3 that were tested
    shares = 6 / 7 + 2 / 3, 1 / 7 + 1 / 3
    assert stats.acceptance == AcceptanceShares(*(pytest.approx(share / 3) for share in shares))
    assert 11 / 3 == stats.tokens_per_step
    assert (1 + 3) / 0.7 == pytest.approx(stats.tokens_per_second)  # since the first step, which came after 0.3 s
    assert 111 == stats.context_tokens
    assert stats.ttft_seconds is None  # the engine process tells it with the totals
    assert stats.speedup is None


def test_speed_looks_at_two_seconds_only():
    live_stats = live_stats_after(AUTO)
    for at in (1.0, 7.0, 7.5, 8.0, 8.5):  # computed in an instant, because other answers came between them
        live_stats.on_event(step(0, 0, seconds=0.001), at)

    assert 3 / 2 == live_stats.snapshot(9.0).tokens_per_second


def test_the_end_of_a_turn_freezes_its_mean_and_knows_plain():
    totals = Totals(
        prompt_tokens=100, completion_tokens=30, steps=10, draft_tokens=80, acceptance=Acceptance((8,), (2,)),
        verify_seconds=1.0, plain_decode_seconds=3.0,
    )  # fmt: skip
    live_stats = live_stats_after(AUTO, step(8, 2), Finished("stop", totals))

    assert live_stats.snapshot(9.0).acceptance_rate == totals.acceptance.rate == 0.25
    assert (30.0, 3.0, False) == (
        live_stats.snapshot(9.0).tokens_per_second, live_stats.snapshot(9.0).speedup.factor,
        live_stats.snapshot(9.0).is_speedup_estimated,
    )  # fmt: skip
    live_stats.start_turn(10.0)
    live_stats.on_event(AUTO, 10.1)
    live_stats.on_event(replace(step(8, 1, seconds=0.1), plain_seconds=0.2), 10.2)
    assert (2.0, True) == (
        pytest.approx(live_stats.snapshot(10.3).speedup.factor),
        live_stats.snapshot(10.3).is_speedup_estimated,
    )


def test_a_running_answer_without_drafts_or_without_a_comparison_has_no_speedup():
    plain, unknown = replace(step(0, 0), plain_seconds=0.01), step(8, 2)

    assert live_stats_after(AUTO, plain, plain).snapshot(9.0).speedup is None
    assert live_stats_after(AUTO, plain, unknown).snapshot(9.0).speedup is None


def test_a_running_answer_with_few_comparisons_has_a_range_or_nothing():
    few, fewer = (replace(step(8, 1, seconds=0.1), plain_seconds=0.2, plain_error=error) for error in (0.3, 0.9))

    assert "1.5-2.6" == live_stats_after(AUTO, few, few).snapshot(9.0).speedup.text
    assert live_stats_after(AUTO, fewer, fewer).snapshot(9.0).speedup is None


def test_the_session_is_summed_over_its_turns():
    live_stats = LiveStats()
    live_stats.add_stored_totals(
        {"acceptance": {"tested": [8, 2], "accepted": [4, 1]}, "prompt_tokens": 90, "completion_tokens": 10}
    )
    live_stats.on_event(step(10, 10), 0.1)

    assert 0.75 == live_stats.snapshot(0.2).session_acceptance_rate  # 5 + 10 of 10 + 10
    assert 1.0 == live_stats.snapshot(0.2).acceptance_rate


def test_a_pinned_variant_is_alone_and_auto_names_the_drafter():
    pinned = live_stats_after(Routed("draft", 4, "pinned", 1)).snapshot(1)

    assert ("draft", "") == (pinned.variant, pinned.drafter)
    assert "lookup" == live_stats_after(Routed("lookup", 4, "auto: no draft model", 1)).snapshot(1).drafter
    assert 16 == live_stats_after(AUTO).snapshot(1).draft_tokens


def test_64_steps_without_draft_tokens_are_a_pause_unless_pinned():
    steps = [step(0, 0)] * WINDOW_STEPS

    assert live_stats_after(AUTO, *steps).snapshot(9).is_speculation_paused
    assert not live_stats_after(AUTO, *steps[1:]).snapshot(9).is_speculation_paused
    assert not live_stats_after(Routed("plain", 0, "pinned", 1), *steps).snapshot(9).is_speculation_paused


def test_loading_and_prefill_are_distinct_and_timed():
    live_stats = live_stats_after(LoadingProgress("target", 1, 4))
    assert (Phase.WAITING, "loading the target model: 25 %") == (live_stats.phase, live_stats.progress.text)
    assert 1.9 == pytest.approx(live_stats.snapshot(2.0).progress.elapsed_seconds)

    live_stats.on_event(PrefillProgress(100, 3100, 100), 3.0)
    live_stats.on_event(PrefillProgress(1300, 3100, 100), 5.0)
    assert "reading 3,000 tokens: 40 %" == live_stats.snapshot(5.0).progress.text
    assert Phase.WAITING is live_stats.phase

    live_stats.on_event(Failed("gone"), 5.0)
    assert Phase.IDLE is live_stats.phase


def test_a_conversion_before_loading_is_named_as_it_is():
    live_stats = live_stats_after(LoadingProgress("target", 1, 4, "converting tiny.gguf"))

    assert (Phase.WAITING, "converting tiny.gguf: 25 %") == (live_stats.phase, live_stats.progress.text)


def test_no_stage_is_a_wait_without_a_word_for_what():
    stages = list[str]()
    for named in ({}, {"stage": "reading the files"}):  # of a question, and of a command about files
        live_stats = LiveStats()
        live_stats.start_turn(2.0, **named)
        stages.append(live_stats.progress.text)

    assert ["waiting for the engine", "reading the files"] == stages


def test_a_question_that_waits_for_what_was_shown_before_it_shows_that_on():
    live_stats = live_stats_after(Waiting("the engine"))
    live_stats.start_turn(2.0)

    assert "waiting for the engine" == live_stats.progress.text
    live_stats.on_event(Waiting("another answer"), 3.0)
    assert ("waiting for another answer", 1.0) == (
        live_stats.snapshot(4.0).progress.text, live_stats.snapshot(4.0).progress.elapsed_seconds,
    )  # fmt: skip


def test_text_alone_changes_no_number():
    live_stats = live_stats_after(AUTO)
    before = live_stats.snapshot(1)
    live_stats.on_event(TextDelta("x"), 1)

    assert before == live_stats.snapshot(1)
