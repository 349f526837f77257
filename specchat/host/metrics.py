"""What the host has done since it began, counted, and the page that tells it: OpenMetrics, as Prometheus reads it.

Guesses go by the names that vLLM gave them, so that its dashboards fit; what vLLM does not count is ours. Counts come
from the events that clients hear and hold no word of what was said. Knows no socket and no engine.

https://prometheus.io/docs/specs/om/open_metrics_spec/ and `vllm/v1/spec_decode/metrics.py`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from specchat.chat.events import TARGET, Event, Failed, Finished, StepDone, Totals

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NO_DRAFTER = "plain"  # who is asked when nothing is guessed
SAMPLE_SUFFIXES = {"counter": "_total", "gauge": "", "info": "_info"}

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class MetricFamily:
    """One name of the page: what it means, and its values by their labels."""

    name: str
    kind: str  # counter, gauge, info, or summary, whose values say by a suffix what they are
    help: str
    samples: Mapping[tuple[str, Labels], float]

    def lines(self) -> Iterator[str]:
        """As text; a name without a value is left out."""
        if not self.samples:
            return
        yield f"# TYPE {self.name} {self.kind}"
        yield f"# HELP {self.name} {self.help}"
        for (suffix, labels), value in self.samples.items():
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            number = str(value) if isinstance(value, int) else repr(value)
            yield f"{self.name}{suffix}{{{shown}}} {number}" if shown else f"{self.name}{suffix} {number}"


def openmetrics_text(families: Iterable[MetricFamily]) -> str:
    """All of them, and the mark that nothing is missing."""
    return "\n".join([*(line for family in families for line in family.lines()), "# EOF", ""])


def metric_family(name: str, kind: str, help: str, value: float | Mapping[str, float], label: str = "") -> MetricFamily:
    """One value, or values by what `label` says."""
    ending = SAMPLE_SUFFIXES[kind]
    if isinstance(value, Mapping):
        return MetricFamily(name, kind, help, {(ending, ((label, key),)): each for key, each in value.items()})
    return MetricFamily(name, kind, help, {(ending, ()): value})


@dataclass
class HostMetrics:
    """The counts. Events come from the thread that passes them on, pages are read by another."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens_by_position: Counter[int] = field(
        default_factory=Counter[int]
    )  # by position in the guess, from 0 on
    draft_tokens_by_drafter: Counter[str] = field(default_factory=Counter[str])
    accepted_tokens_by_drafter: Counter[str] = field(default_factory=Counter[str])
    steps_by_drafter: Counter[str] = field(default_factory=Counter[str])  # passes by who guessed
    steps_by_rows: Counter[int] = field(
        default_factory=Counter[int]
    )  # by width, which is the guesses and the sure token
    verify_seconds_by_rows: dict[int, float] = field(default_factory=dict[int, float])
    draft_seconds: float = 0.0
    answers_by_finish_reason: Counter[str] = field(default_factory=Counter[str])  # by how they ended
    prompt_tokens: int = 0
    generated_tokens: int = 0
    first_token_count: int = 0
    first_token_seconds: float = 0.0
    compared_decode_seconds: float = 0.0  # of the answers for which the cost of a plain pass is known
    plain_decode_seconds: float = 0.0  # what those would have taken
    _lock: Lock = field(default_factory=Lock)

    def on_event(self, event: Event) -> None:
        """Count an event, if it is one that counts."""
        match event:
            case StepDone():
                with self._lock:
                    self._count_step(event)
            case Finished(finish_reason=reason, totals=totals):
                with self._lock:
                    self.answers_by_finish_reason[reason] += 1
                    self._count_finished(totals)
            case Failed():
                with self._lock:
                    self.answers_by_finish_reason["failed"] += 1
            case _:
                pass

    def families(self) -> list[MetricFamily]:
        """What there is to tell."""
        with self._lock:
            return [*self._vllm_families(), *self._drafter_families(), *self._time_families()]

    def _count_step(self, step: StepDone) -> None:
        held = [token.source for token in step.committed_tokens if token.source != TARGET]
        self.steps_by_rows[1 + len(step.draft_tokens)] += 1
        width, seconds = 1 + len(step.draft_tokens), step.verify_seconds
        self.verify_seconds_by_rows[width] = self.verify_seconds_by_rows.get(width, 0.0) + seconds
        self.draft_seconds += step.draft_seconds
        self.steps_by_drafter.update(set(step.draft_sources) or ({NO_DRAFTER} if not step.draft_tokens else set(held)))
        if step.draft_tokens:
            self.drafts += 1
            self.draft_tokens += len(step.draft_tokens)
            self.draft_tokens_by_drafter.update(step.draft_sources)
            self.accepted_tokens_by_drafter.update(held)
            self.accepted_tokens_by_position.update(range(len(held)))

    def _count_finished(self, totals: Totals) -> None:
        self.prompt_tokens += totals.prompt_tokens
        self.generated_tokens += totals.completion_tokens
        if totals.ttft_seconds:
            self.first_token_count += 1
            self.first_token_seconds += totals.ttft_seconds
        if totals.plain_step_seconds:
            self.compared_decode_seconds += totals.decode_seconds
            self.plain_decode_seconds += totals.completion_tokens * totals.plain_step_seconds

    def _vllm_families(self) -> Iterator[MetricFamily]:
        name = "vllm:spec_decode_num_"
        positions = {str(at): count for at, count in sorted(self.accepted_tokens_by_position.items())}
        accepted = sum(positions.values())
        yield metric_family(f"{name}drafts", "counter", "Passes for which somebody guessed.", self.drafts)
        yield metric_family(f"{name}draft_tokens", "counter", "Guessed tokens.", self.draft_tokens)
        yield metric_family(f"{name}accepted_tokens", "counter", "Guessed tokens that held.", accepted)
        help = "Guessed tokens that held, by their place in the guess."
        yield metric_family(f"{name}accepted_tokens_per_pos", "counter", help, positions, "position")
        yield metric_family("vllm:prompt_tokens", "counter", "Tokens of prompts, known ones too.", self.prompt_tokens)
        yield metric_family("vllm:generation_tokens", "counter", "Tokens of answers.", self.generated_tokens)

    def _drafter_families(self) -> Iterator[MetricFamily]:
        yield metric_family(
            "specchat:asked", "counter", "Passes, by who guessed; plain is nobody.", self.steps_by_drafter, "drafter"
        )
        yield metric_family(
            "specchat:draft_tokens",
            "counter",
            "Guessed tokens, by who guessed.",
            self.draft_tokens_by_drafter,
            "drafter",
        )
        help = "Guessed tokens that held, by who guessed."
        yield metric_family("specchat:accepted_tokens", "counter", help, self.accepted_tokens_by_drafter, "drafter")
        yield metric_family(
            "specchat:answers", "counter", "Answers, by how they ended.", self.answers_by_finish_reason, "reason"
        )

    def _time_families(self) -> Iterator[MetricFamily]:
        by_width: dict[tuple[str, Labels], float] = {}
        for width, count in sorted(self.steps_by_rows.items()):
            labels = (("width", str(width)),)
            by_width |= {("_count", labels): count, ("_sum", labels): self.verify_seconds_by_rows[width]}
        yield MetricFamily(
            "specchat:pass_seconds", "summary", "Passes of the target, by the rows they computed.", by_width
        )
        yield metric_family("specchat:draft_seconds", "counter", "Time spent on guessing.", self.draft_seconds)
        first: dict[tuple[str, Labels], float] = {
            ("_count", ()): self.first_token_count,
            ("_sum", ()): self.first_token_seconds,
        }
        yield MetricFamily("specchat:first_token_seconds", "summary", "From a question to its first token.", first)
        yield metric_family(
            "specchat:decode_seconds", "counter", "Time of answers, where plain is known.", self.compared_decode_seconds
        )
        help = "What the same tokens would have cost without guesses."
        yield metric_family("specchat:plain_seconds", "counter", help, self.plain_decode_seconds)
        if self.compared_decode_seconds:
            times = self.plain_decode_seconds / self.compared_decode_seconds
            yield metric_family("specchat:times_plain", "gauge", "Speed against plain decoding since the start.", times)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
