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
NOBODY = "plain"  # who is asked when nothing is guessed
ENDINGS = {"counter": "_total", "gauge": "", "info": "_info"}

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """One name of the page: what it means, and its values by their labels."""

    name: str
    kind: str  # counter, gauge, info, or summary, whose values say by a suffix what they are
    help: str
    values: Mapping[tuple[str, Labels], float]

    def lines(self) -> Iterator[str]:
        """As text; a name without a value is left out."""
        if not self.values:
            return
        yield f"# TYPE {self.name} {self.kind}"
        yield f"# HELP {self.name} {self.help}"
        for (suffix, labels), value in self.values.items():
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            number = str(value) if isinstance(value, int) else repr(value)
            yield f"{self.name}{suffix}{{{shown}}} {number}" if shown else f"{self.name}{suffix} {number}"


def page(families: Iterable[Family]) -> str:
    """All of them, and the mark that nothing is missing."""
    return "\n".join([*(line for family in families for line in family.lines()), "# EOF", ""])


def family(name: str, kind: str, help: str, value: float | Mapping[str, float], label: str = "") -> Family:
    """One value, or values by what `label` says."""
    ending = ENDINGS[kind]
    if isinstance(value, Mapping):
        return Family(name, kind, help, {(ending, ((label, key),)): each for key, each in value.items()})
    return Family(name, kind, help, {(ending, ()): value})


@dataclass
class Meters:
    """The counts. Events come from the thread that passes them on, pages are read by another."""

    drafts: int = 0
    drafted: int = 0
    accepted_at: Counter[int] = field(default_factory=Counter[int])  # by position in the guess, from 0 on
    drafted_by: Counter[str] = field(default_factory=Counter[str])
    accepted_by: Counter[str] = field(default_factory=Counter[str])
    asked: Counter[str] = field(default_factory=Counter[str])  # passes by who guessed
    passes: Counter[int] = field(default_factory=Counter[int])  # by width, which is the guesses and the sure token
    pass_seconds: dict[int, float] = field(default_factory=dict[int, float])
    draft_seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter[str])  # by how they ended
    prompt_tokens: int = 0
    tokens: int = 0
    first: int = 0
    first_seconds: float = 0.0
    priced_seconds: float = 0.0  # of the answers for which the cost of a plain pass is known
    plain_seconds: float = 0.0  # what those would have taken
    _lock: Lock = field(default_factory=Lock)

    def hear(self, event: Event) -> None:
        """Count an event, if it is one that counts."""
        match event:
            case StepDone():
                with self._lock:
                    self._step(event)
            case Finished(reason=reason, totals=totals):
                with self._lock:
                    self.answers[reason] += 1
                    self._finish(totals)
            case Failed():
                with self._lock:
                    self.answers["failed"] += 1
            case _:
                pass

    def families(self) -> list[Family]:
        """What there is to tell."""
        with self._lock:
            return [*self._of_vllm(), *self._of_guessers(), *self._of_time()]

    def _step(self, step: StepDone) -> None:
        held = [token.source for token in step.committed if token.source != TARGET]
        self.passes[1 + len(step.drafted)] += 1
        width, seconds = 1 + len(step.drafted), step.verify_seconds
        self.pass_seconds[width] = self.pass_seconds.get(width, 0.0) + seconds
        self.draft_seconds += step.draft_seconds
        self.asked.update(set(step.sources) or ({NOBODY} if not step.drafted else set(held)))
        if step.drafted:
            self.drafts += 1
            self.drafted += len(step.drafted)
            self.drafted_by.update(step.sources)
            self.accepted_by.update(held)
            self.accepted_at.update(range(len(held)))

    def _finish(self, totals: Totals) -> None:
        self.prompt_tokens += totals.prompt_tokens
        self.tokens += totals.tokens
        if totals.first_token_seconds:
            self.first += 1
            self.first_seconds += totals.first_token_seconds
        if totals.plain_seconds:
            self.priced_seconds += totals.decode_seconds
            self.plain_seconds += totals.tokens * totals.plain_seconds

    def _of_vllm(self) -> Iterator[Family]:
        name = "vllm:spec_decode_num_"
        positions = {str(at): count for at, count in sorted(self.accepted_at.items())}
        accepted = sum(positions.values())
        yield family(f"{name}drafts", "counter", "Passes for which somebody guessed.", self.drafts)
        yield family(f"{name}draft_tokens", "counter", "Guessed tokens.", self.drafted)
        yield family(f"{name}accepted_tokens", "counter", "Guessed tokens that held.", accepted)
        help = "Guessed tokens that held, by their place in the guess."
        yield family(f"{name}accepted_tokens_per_pos", "counter", help, positions, "position")
        yield family("vllm:prompt_tokens", "counter", "Tokens of prompts, known ones too.", self.prompt_tokens)
        yield family("vllm:generation_tokens", "counter", "Tokens of answers.", self.tokens)

    def _of_guessers(self) -> Iterator[Family]:
        yield family("specchat:asked", "counter", "Passes, by who guessed; plain is nobody.", self.asked, "drafter")
        yield family("specchat:draft_tokens", "counter", "Guessed tokens, by who guessed.", self.drafted_by, "drafter")
        help = "Guessed tokens that held, by who guessed."
        yield family("specchat:accepted_tokens", "counter", help, self.accepted_by, "drafter")
        yield family("specchat:answers", "counter", "Answers, by how they ended.", self.answers, "reason")

    def _of_time(self) -> Iterator[Family]:
        by_width: dict[tuple[str, Labels], float] = {}
        for width, count in sorted(self.passes.items()):
            labels = (("width", str(width)),)
            by_width |= {("_count", labels): count, ("_sum", labels): self.pass_seconds[width]}
        yield Family("specchat:pass_seconds", "summary", "Passes of the target, by the rows they computed.", by_width)
        yield family("specchat:draft_seconds", "counter", "Time spent on guessing.", self.draft_seconds)
        first: dict[tuple[str, Labels], float] = {("_count", ()): self.first, ("_sum", ()): self.first_seconds}
        yield Family("specchat:first_token_seconds", "summary", "From a question to its first token.", first)
        yield family(
            "specchat:decode_seconds", "counter", "Time of answers, where plain is known.", self.priced_seconds
        )
        help = "What the same tokens would have cost without guesses."
        yield family("specchat:plain_seconds", "counter", help, self.plain_seconds)
        if self.priced_seconds:
            times = self.plain_seconds / self.priced_seconds
            yield family("specchat:times_plain", "gauge", "Speed against plain decoding since the start.", times)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
