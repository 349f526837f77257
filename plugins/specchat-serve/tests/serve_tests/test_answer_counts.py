"""The metrics: counters, and the format of their page."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from specchat.chat.events import CommittedToken, Failed, Finished, Routed, StepDone, TextDelta, Totals
from specchat_serve.answer_counts import AnswerCounts
from specchat_serve.metrics_page import MetricsPage, answer_metrics

ACCEPTED = StepDone(
    (1, 2, 3), (0, 1, 2),
    (CommittedToken(1, b"a", "lookup"), CommittedToken(2, b"b", "draft"), CommittedToken(9, b"c", "target")),
    0.25, 0.5, draft_sources=("lookup", "draft", "draft"),
)  # fmt: skip
REJECTED = StepDone(
    (1, 2, 3), (0, 1, 2), (CommittedToken(9, b"c", "target"),), 0.25, 1.0, draft_sources=("lookup",) * 3
)
PLAIN = StepDone((), (), (CommittedToken(9, b"c", "target"),), 0.0, 0.125)
TOTALS = Totals(
    prompt_tokens=7, completion_tokens=5, draft_tokens=6, verify_seconds=1.0, ttft_seconds=0.5,
    plain_decode_seconds=2.0, plain_decode_error=0.25,
)  # fmt: skip


def read(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and the values of their labels, as Prometheus' own parser reads them."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for each in text_string_to_metric_families(text):
        for sample in each.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def samples_after(*events) -> dict[str, dict[tuple[str, ...], float]]:
    metrics = AnswerCounts()
    for event in events:
        metrics.on_event(event)
    return read(MetricsPage(answer_metrics(metrics)).render().decode())


def test_draft_tokens_are_counted_under_the_names_of_vllm():
    samples = samples_after(ACCEPTED, REJECTED, PLAIN)

    assert samples["vllm:spec_decode_num_drafts_total"] == {(): 2}
    assert samples["vllm:spec_decode_num_draft_tokens_total"] == {(): 6}
    assert samples["vllm:spec_decode_num_accepted_tokens_total"] == {(): 2}
    assert samples["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {("0",): 1, ("1",): 1}


def test_verify_seconds_are_summed_by_rows():
    samples = samples_after(ACCEPTED, REJECTED, PLAIN)

    assert samples["specchat:verify_seconds_count"] == {("1",): 1, ("4",): 2}
    assert samples["specchat:verify_seconds_sum"] == {("1",): 0.125, ("4",): 1.5}


def test_steps_draft_tokens_and_accepted_tokens_are_counted_by_drafter():
    samples = samples_after(ACCEPTED, REJECTED, PLAIN)

    assert samples["specchat:steps_total"] == {("lookup",): 2, ("draft",): 1, ("plain",): 1}
    assert samples["specchat:draft_tokens_total"] == {("lookup",): 4, ("draft",): 2}
    assert samples["specchat:accepted_tokens_total"] == {("lookup",): 1, ("draft",): 1}


def test_answers_are_counted_by_finish_reason_and_compared_with_plain_decoding():
    samples = samples_after(Finished("stop", TOTALS), Finished("cancelled", Totals()), Failed("no"))

    assert samples["specchat:answers_total"] == {("stop",): 1, ("cancelled",): 1, ("failed",): 1}
    assert samples["vllm:generation_tokens_total"] == {(): 5}
    assert samples["vllm:prompt_tokens_total"] == {(): 7}
    assert samples["specchat:ttft_seconds_sum"] == {(): 0.5}
    assert samples["specchat:plain_decode_seconds_total"] == {(): 2.0}


def test_the_speedup_has_an_interval_and_needs_draft_tokens():
    samples = samples_after(ACCEPTED, Finished("stop", TOTALS))

    assert samples["specchat:speedup"] == {(): 2.0}
    assert samples["specchat:speedup_interval"] == {("low",): 1.6, ("high",): 2.5}
    assert "specchat:speedup" not in samples_after(PLAIN, Finished("stop", replace(TOTALS, draft_tokens=0)))


def test_text_is_never_on_the_page():
    metrics = AnswerCounts()
    for event in (TextDelta("secret"), Routed("auto", 4, "secret", 1)):
        metrics.on_event(event)

    assert "secret" not in MetricsPage(answer_metrics(metrics)).render().decode()


def test_a_label_may_hold_any_character():
    samples = samples_after(replace(ACCEPTED, draft_sources=('a"b\\c\nd',)))

    assert samples["specchat:steps_total"] == {('a"b\\c\nd',): 1}
