"""The page of this server for Prometheus, in OpenMetrics: what it has answered; no text, and no names of clients.

Speculation metrics have the names of vLLM, so that its dashboards work; metrics that vLLM lacks begin with `specchat:`.

`vllm/v1/spec_decode/metrics.py`
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.openmetrics.exposition import ALLOWUTF8, CONTENT_TYPE_LATEST, generate_latest

from specchat.errors import SpecchatError
from specchat.host.client import connect
from specchat.host.protocol import JsonObject
from specchat_serve.answer_counts import AnswerCounts
from specchat_serve.connection_pool import CLIENT_NAME

CONTENT_TYPE = CONTENT_TYPE_LATEST
SPEC_DECODE = "vllm:spec_decode_num_"
NOT_RUNNING = "not running"


@dataclass(frozen=True)
class MetricsPage:
    metrics: Iterable[Metric]

    def render(self) -> bytes:
        return generate_latest(self, ALLOWUTF8)  # any other form loses the colons of the names

    def collect(self) -> Iterable[Metric]:
        """The metrics, as the library asks for them."""
        return self.metrics


def metrics_page(
    counts: AnswerCounts, requests: Mapping[tuple[str, str], int], running: int, waiting: int, host_stats: JsonObject
) -> bytes:
    """The page; finished requests are counted by path and status. Others wait for a connection, or run."""
    finished = CounterMetricFamily("specchat:http_requests", "Finished HTTP requests.", labels=("path", "status"))
    for path_and_status, count in sorted(requests.items()):
        finished.add_metric(path_and_status, count)
    return MetricsPage([*answer_metrics(counts), finished, *_gauges(running, waiting, host_stats)]).render()


def read_host_stats() -> JsonObject:
    """The state and the memory of the engine process. Starts none."""
    try:
        connection = connect(CLIENT_NAME, starts_host=False)
        if connection is None:
            return {"state": NOT_RUNNING}
        try:
            return connection.call("stats", {})
        finally:
            connection.close()
    except (SpecchatError, OSError):
        return {"state": NOT_RUNNING}


def answer_metrics(counts: AnswerCounts) -> list[Metric]:
    with counts.lock:
        return [*_token_counters(counts), *_drafter_counters(counts), *_times(counts), *_comparison(counts)]


def _gauges(running: int, waiting: int, host_stats: JsonObject) -> Iterator[Metric]:
    """The requests of the moment, and the engine process."""
    yield gauge("vllm:num_requests_running", "Running requests.", running)
    yield gauge("vllm:num_requests_waiting", "Waiting requests.", waiting)
    yield gauge("specchat:models_loaded", "1 with loaded models.", int(host_stats.get("state") == "ready"))
    memory = host_stats.get("memory_bytes", {})
    yield gauge("specchat:memory_bytes", "Memory use of the engine, by component.", memory, "kind")


def gauge(name: str, help: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    """A gauge with one sample, or with one for each value of the label."""
    return _with_samples(GaugeMetricFamily(name, help, labels=(label,) if label else ()), value)


def counter(name: str, help: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    return _with_samples(CounterMetricFamily(name, help, labels=(label,) if label else ()), value)


def _with_samples(family: GaugeMetricFamily | CounterMetricFamily, value: float | Mapping[str, float]) -> Metric:
    for key, number in value.items() if isinstance(value, Mapping) else [("", value)]:
        family.add_metric((key,), number)
    return family


def _token_counters(counts: AnswerCounts) -> Iterator[Metric]:
    by_position = {str(position): count for position, count in enumerate(counts.acceptance.accepted)}
    tested = {str(position): count for position, count in enumerate(counts.acceptance.tested)}
    yield counter(f"{SPEC_DECODE}drafts", "Steps with draft tokens.", counts.drafts)
    yield counter(f"{SPEC_DECODE}draft_tokens", "Draft tokens; of a tree, its depth.", counts.draft_positions)
    yield counter(f"{SPEC_DECODE}accepted_tokens", "Accepted draft tokens.", sum(by_position.values()))
    help = "Accepted draft tokens, by position in the draft."
    yield counter(f"{SPEC_DECODE}accepted_tokens_per_pos", help, by_position, "position")
    help = "Draft tokens whose parent was accepted, by position; acceptance is the share of them that was accepted."
    yield counter("specchat:tested_tokens", help, tested, "position")
    yield counter("vllm:prompt_tokens", "Tokens of prompts, cached ones included.", counts.totals.prompt_tokens)
    yield counter("vllm:generation_tokens", "Tokens of answers.", counts.totals.completion_tokens)
    help = "Tokens of loops, cut off from answers; no other counter has them."
    yield counter("specchat:repeated_tokens", help, counts.totals.repeated_tokens)


def _drafter_counters(counts: AnswerCounts) -> Iterator[Metric]:
    drafted, accepted = counts.draft_tokens_by_drafter, counts.accepted_by_drafter
    yield counter("specchat:steps", "Steps, by drafter; plain: no draft tokens.", counts.steps_by_drafter, "drafter")
    yield counter("specchat:draft_tokens", "Draft tokens, by drafter.", drafted, "drafter")
    yield counter("specchat:accepted_tokens", "Accepted draft tokens, by drafter.", accepted, "drafter")
    yield counter("specchat:answers", "Answers, by finish reason.", counts.answers_by_finish_reason, "finish_reason")


def _times(counts: AnswerCounts) -> Iterator[Metric]:
    help = "Duration of forward passes of the target, by rows in the batch."
    verify = SummaryMetricFamily("specchat:verify_seconds", help, labels=("rows",))
    for rows, count in sorted(counts.steps_by_rows.items()):
        verify.add_metric((str(rows),), count, counts.verify_seconds_by_rows[rows])
    yield verify
    yield counter("specchat:draft_seconds", "Time spent on drafting.", counts.draft_seconds)
    first = counts.first_token_count, counts.first_token_seconds
    help = "Time from the request to the first token, without loading."
    yield SummaryMetricFamily("specchat:ttft_seconds", help, *first)
    help = "Time from the request to the end of the text, without loading."
    yield SummaryMetricFamily("specchat:answer_seconds", help, counts.finished, counts.totals.total_seconds)


def _comparison(counts: AnswerCounts) -> Iterator[Metric]:
    """The speed relative to plain decoding, and what it comes from."""
    sums = counts.totals
    help = "Decode time of answers for which the time of plain decoding is known."
    yield counter("specchat:compared_decode_seconds", help, sums.compared_decode_seconds)
    help = "Decode time of the same answers without speculation, from passes measured during them."
    yield counter("specchat:plain_decode_seconds", help, sums.plain_decode_seconds)
    if (speedup := sums.speedup) is not None:
        low, high = speedup.interval
        yield gauge("specchat:speedup", "Speedup over plain decoding since the start.", speedup.factor)
        yield gauge("specchat:speedup_interval", "Its 95 % interval.", {"low": low, "high": high}, "bound")
