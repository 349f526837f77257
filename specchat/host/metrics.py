"""Counts what the host has done since it started, and renders the counts as an OpenMetrics page for Prometheus.

Speculation metrics have the names of vLLM, so that its dashboards work; metrics that vLLM lacks begin with `specchat:`.
The counts come from the events that clients receive, and hold no text. Knows no socket and no engine.

https://prometheus.io/docs/specs/om/open_metrics_spec/ and `vllm/v1/spec_decode/metrics.py`
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from specchat.chat.events import TARGET, Event, Failed, Finished, StepDone, Totals, speedup_of_sums

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NO_DRAFTER = "plain"  # the drafter label of steps without draft tokens
SAMPLE_SUFFIXES = {"counter": "_total", "gauge": "", "info": "_info"}

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class MetricFamily:
    """One metric: its help text, and its samples by (suffix, labels)."""

    name: str
    kind: str  # counter, gauge, info or summary
    help: str
    samples: Mapping[tuple[str, Labels], float]

    def lines(self) -> Iterator[str]:
        if not self.samples:
            return
        yield f"# TYPE {self.name} {self.kind}"
        yield f"# HELP {self.name} {self.help}"
        for (suffix, labels), value in self.samples.items():
            label_text = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            number = str(value) if isinstance(value, int) else repr(value)
            yield f"{self.name}{suffix}{{{label_text}}} {number}" if label_text else f"{self.name}{suffix} {number}"


def openmetrics_text(families: Iterable[MetricFamily]) -> str:
    return "\n".join([*(line for family in families for line in family.lines()), "# EOF", ""])


def metric_family(name: str, kind: str, help: str, value: float | Mapping[str, float], label: str = "") -> MetricFamily:
    """A family with one sample, or with one sample for each value of `label`."""
    suffix = SAMPLE_SUFFIXES[kind]
    if isinstance(value, Mapping):
        return MetricFamily(name, kind, help, {(suffix, ((label, key),)): each for key, each in value.items()})
    return MetricFamily(name, kind, help, {(suffix, ()): value})


@dataclass
class HostMetrics:
    """The counters. The I/O thread updates them, and the thread of the metrics server reads them."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens_by_position: Counter[int] = field(default_factory=Counter[int])  # position in the draft, from 0
    draft_tokens_by_drafter: Counter[str] = field(default_factory=Counter[str])
    accepted_tokens_by_drafter: Counter[str] = field(default_factory=Counter[str])
    steps_by_drafter: Counter[str] = field(default_factory=Counter[str])
    steps_by_rows: Counter[int] = field(default_factory=Counter[int])  # rows: the root and the draft tokens
    verify_seconds_by_rows: dict[int, float] = field(default_factory=dict[int, float])
    draft_seconds: float = 0.0
    answers_by_finish_reason: Counter[str] = field(default_factory=Counter[str])
    prompt_tokens: int = 0
    generated_tokens: int = 0
    first_token_count: int = 0
    first_token_seconds: float = 0.0
    compared_decode_seconds: float = 0.0  # of answers for which the time of plain decoding is known
    plain_decode_seconds: float = 0.0  # of plain decoding for the same answers
    plain_decode_error_seconds: float = 0.0  # half of its 95 % interval
    _lock: Lock = field(default_factory=Lock)

    def on_event(self, event: Event) -> None:
        with self._lock:
            match event:
                case StepDone():
                    self._count_step(event)
                case Finished(finish_reason=reason, totals=totals):
                    self.answers_by_finish_reason[reason] += 1
                    self._count_finished(totals)
                case Failed():
                    self.answers_by_finish_reason["failed"] += 1
                case _:
                    pass

    def families(self) -> list[MetricFamily]:
        with self._lock:
            return [*self._vllm_families(), *self._drafter_families(), *self._time_families()]

    def _count_step(self, step: StepDone) -> None:
        accepted = [token.source for token in step.committed_tokens if token.source != TARGET]
        rows = 1 + len(step.draft_tokens)
        self.steps_by_rows[rows] += 1
        self.verify_seconds_by_rows[rows] = self.verify_seconds_by_rows.get(rows, 0.0) + step.verify_seconds
        self.draft_seconds += step.draft_seconds
        if not step.draft_tokens:
            self.steps_by_drafter[NO_DRAFTER] += 1
            return
        self.steps_by_drafter.update(set(step.draft_sources) or set(accepted))
        self.drafts += 1
        self.draft_tokens += len(step.draft_tokens)
        self.draft_tokens_by_drafter.update(step.draft_sources)
        self.accepted_tokens_by_drafter.update(accepted)
        self.accepted_tokens_by_position.update(range(len(accepted)))

    def _count_finished(self, totals: Totals) -> None:
        self.prompt_tokens += totals.prompt_tokens
        self.generated_tokens += totals.completion_tokens
        if totals.ttft_seconds:
            self.first_token_count += 1
            self.first_token_seconds += totals.ttft_seconds
        if totals.plain_decode_seconds:
            self.compared_decode_seconds += totals.decode_seconds
            self.plain_decode_seconds += totals.plain_decode_seconds
            self.plain_decode_error_seconds += totals.plain_decode_error * totals.plain_decode_seconds

    def _vllm_families(self) -> Iterator[MetricFamily]:
        name = "vllm:spec_decode_num_"
        by_position = {str(position): count for position, count in sorted(self.accepted_tokens_by_position.items())}
        accepted = sum(by_position.values())
        yield metric_family(f"{name}drafts", "counter", "Steps with draft tokens.", self.drafts)
        yield metric_family(f"{name}draft_tokens", "counter", "Draft tokens.", self.draft_tokens)
        yield metric_family(f"{name}accepted_tokens", "counter", "Accepted draft tokens.", accepted)
        help = "Accepted draft tokens, by position in the draft."
        yield metric_family(f"{name}accepted_tokens_per_pos", "counter", help, by_position, "position")
        help = "Tokens of prompts, cached ones included."
        yield metric_family("vllm:prompt_tokens", "counter", help, self.prompt_tokens)
        yield metric_family("vllm:generation_tokens", "counter", "Tokens of answers.", self.generated_tokens)

    def _drafter_families(self) -> Iterator[MetricFamily]:
        for name, help, counts in (
            ("steps", "Steps, by drafter; plain: no draft tokens.", self.steps_by_drafter),
            ("draft_tokens", "Draft tokens, by drafter.", self.draft_tokens_by_drafter),
            ("accepted_tokens", "Accepted draft tokens, by drafter.", self.accepted_tokens_by_drafter),
        ):
            yield metric_family(f"specchat:{name}", "counter", help, counts, "drafter")
        counts, help = self.answers_by_finish_reason, "Answers, by finish reason."
        yield metric_family("specchat:answers", "counter", help, counts, "finish_reason")

    def _time_families(self) -> Iterator[MetricFamily]:
        verify: dict[tuple[str, Labels], float] = {}
        for rows, count in sorted(self.steps_by_rows.items()):
            labels = (("rows", str(rows)),)
            verify |= {("_count", labels): count, ("_sum", labels): self.verify_seconds_by_rows[rows]}
        help = "Duration of forward passes of the target, by rows in the batch."
        yield MetricFamily("specchat:verify_seconds", "summary", help, verify)
        yield metric_family("specchat:draft_seconds", "counter", "Time spent on drafting.", self.draft_seconds)
        first: dict[tuple[str, Labels], float] = {
            ("_count", ()): self.first_token_count,
            ("_sum", ()): self.first_token_seconds,
        }
        yield MetricFamily("specchat:ttft_seconds", "summary", "Time to first token.", first)
        help = "Decode time of answers for which the time of plain decoding is known."
        yield metric_family("specchat:compared_decode_seconds", "counter", help, self.compared_decode_seconds)
        help = "Decode time of the same answers without speculation, from passes measured during them."
        yield metric_family("specchat:plain_decode_seconds", "counter", help, self.plain_decode_seconds)
        speedup = speedup_of_sums(
            self.plain_decode_seconds, self.plain_decode_error_seconds, self.compared_decode_seconds
        )
        if self.drafts and speedup is not None:
            help = "Speedup over plain decoding since the start."
            yield metric_family("specchat:speedup", "gauge", help, speedup.factor)
            low, high = speedup.interval
            yield metric_family(
                "specchat:speedup_interval", "gauge", "Its 95 % interval.", {"low": low, "high": high}, "bound"
            )


def resident_bytes() -> int:
    """The main memory of this process, with Python and torch; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
