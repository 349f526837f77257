"""Reads the speculation counters of a server, from the response itself or from its metrics page before and after.

A response tells about one answer: vLLM's has the draft tokens of each step, or how many steps accepted how many, and
llama.cpp's the sums. On a metrics page, vLLM and llama.cpp count draft tokens and accepted tokens. SGLang counts
generated tokens and verification steps; its gauges cover the last seconds of all requests, so only the draft length
comes from them. The counters of a metrics page include the requests of other clients: these change the acceptance rate,
but not the number of tokens.

`vllm/v1/spec_decode/metrics.py`, vLLM's docs/features/speculative_decoding/acceptance_metrics.md, and
`sglang/srt/observability/metrics_collector.py`, as of autumn 2026
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from specchat.acceptance_counts import Acceptance

SPEC_DECODE_PREFIX = "spec_decode_num_"
SGLANG_PREFIX = "sglang:"
MAX_STEPS, MAX_DRAFT_TOKENS = 2**17, 2**10  # of one answer, and of one step
MAX_COUNT = 2**53  # beyond it, a number of a page is not exact, and that of a response is no count


@dataclass(frozen=True)
class SpecDecodeCounts:
    verify_steps: int
    draft_tokens: int
    accepted_tokens: int
    acceptance: Acceptance = Acceptance()  # by depth, where the server tells it

    def scaled_to(self, tokens: int) -> SpecDecodeCounts | None:
        """The share of an answer with this many tokens; None without draft tokens or for inconsistent counts."""
        if not (0 <= self.accepted_tokens <= self.draft_tokens and self.draft_tokens > 0 and self.verify_steps > 0):
            return None
        if max(self.draft_tokens, self.verify_steps) >= MAX_COUNT:
            return None
        share = min(1.0, tokens / (self.accepted_tokens + self.verify_steps))
        counts = (self.verify_steps, self.draft_tokens, self.accepted_tokens)
        steps, drafted, accepted = (round(count * share) for count in counts)
        return SpecDecodeCounts(steps, drafted, accepted, self.acceptance)


def counts_of_response(fields: Mapping[str, Any]) -> SpecDecodeCounts | None:
    """The counts in the last fields of a response beside those of OpenAI: `metrics` of vLLM, `timings` of llama.cpp."""
    metrics, timings = fields.get("metrics"), fields.get("timings")
    if isinstance(metrics, Mapping) and isinstance(counts := metrics.get("speculative_decoding"), Mapping):
        names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
        numbers = _whole_numbers(counts.get(name) for name in names)
        if numbers:
            steps, drafted, accepted = numbers
            return SpecDecodeCounts(steps, drafted, accepted, _acceptance(counts))
    if isinstance(timings, Mapping):
        numbers = _whole_numbers(timings.get(name) for name in ("predicted_n", "draft_n", "draft_n_accepted"))
        if numbers:
            tokens, drafted, accepted = numbers
            return SpecDecodeCounts(tokens - accepted, drafted, accepted)
    return None


def _whole_numbers(values: Iterable[object]) -> list[int]:
    """These numbers; none where one is of another type."""
    numbers = list(values)
    return [each for each in numbers if isinstance(each, int)] if all(isinstance(e, int) for e in numbers) else []


def _acceptance(counts: Mapping[str, Any]) -> Acceptance:
    """By depth: exact from the steps, and from their histogram where each step drafted the full length."""
    drafted, accepted = counts.get("per_step_drafted"), counts.get("per_step_accepted")
    histogram, length = counts.get("acceptance_histogram"), counts.get("num_spec_tokens")
    if isinstance(drafted, list) and isinstance(accepted, list) and len(drafted) == len(accepted) <= MAX_STEPS:
        steps = list(zip(_whole_numbers(drafted), _whole_numbers(accepted), strict=False))
    elif isinstance(histogram, list) and isinstance(length, int) and len(histogram) == length + 1 <= MAX_DRAFT_TOKENS:
        numbers = _whole_numbers(histogram)
        if sum(numbers) * length != counts["num_draft_tokens"] or not all(0 <= each < MAX_COUNT for each in numbers):
            return Acceptance()
        tested = [sum(numbers[depth:]) for depth in range(length)]
        return Acceptance(tested, [*tested[1:], numbers[length]])
    else:
        return Acceptance()
    if not all(0 <= a <= d <= MAX_DRAFT_TOKENS for d, a in steps):
        return Acceptance()
    return sum((Acceptance.of_step(min(d, a + 1), a) for d, a in steps), Acceptance())


def counts_between(before: str | None, after: str | None) -> SpecDecodeCounts | None:
    """The difference of two metrics pages; None without such counters."""
    if before is None or after is None:
        return None
    old, new = sample_sums(before), sample_sums(after)
    grown = defaultdict[str, float](float, {name: value - old.get(name, 0.0) for name, value in new.items()})
    if prefix := _metric_prefix(new):
        drafts, drafted, accepted = (
            grown[f"{prefix}{SPEC_DECODE_PREFIX}{name}_total"] for name in ("drafts", "draft_tokens", "accepted_tokens")
        )
        return _counts(drafts, drafted, accepted)
    if f"{SGLANG_PREFIX}spec_verify_calls_total" in new:
        return _sglang_counts(new, grown)
    return None


def has_speculation(page: str) -> bool:
    """Whether the metrics page shows that the server uses speculative decoding."""
    samples = sample_sums(page)
    return bool(_metric_prefix(samples)) or samples.get(f"{SGLANG_PREFIX}spec_accept_length", 0.0) > 0


def sample_sums(page: str) -> dict[str, float]:
    """The samples by name, summed over their labels, up to the first syntax error."""
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except ValueError:
        pass  # a truncated page is valid up to here
    return sums


def _metric_prefix(samples: Mapping[str, float]) -> str:
    """The prefix of the speculation counters: `vllm:`, `llamacpp:`, or "" without counters."""
    name = f"{SPEC_DECODE_PREFIX}drafts_total"
    return next((each.removesuffix(name) for each in samples if each.endswith(name)), "")


def _sglang_counts(new: Mapping[str, float], grown: Mapping[str, float]) -> SpecDecodeCounts | None:
    """A step yields its accepted tokens and one more; the first token of an answer comes from the prefill."""
    steps = grown[f"{SGLANG_PREFIX}spec_verify_calls_total"]
    answers = grown[f"{SGLANG_PREFIX}num_requests_total"]
    accepted = max(0.0, grown[f"{SGLANG_PREFIX}generation_tokens_total"] - answers - steps)
    rows = new.get(f"{SGLANG_PREFIX}spec_num_draft_tokens", 0.0)
    rate = new.get(f"{SGLANG_PREFIX}spec_accept_rate", 0.0)
    drafted = steps * (rows - 1) if rows > 1 else accepted / rate if rate else accepted
    return _counts(steps, max(drafted, accepted), accepted)


def _counts(steps: float, drafted: float, accepted: float) -> SpecDecodeCounts | None:
    """None for samples that are no number, or endless."""
    if not all(map(isfinite, (steps, drafted, accepted))):
        return None
    return SpecDecodeCounts(round(steps), round(drafted), round(accepted))
