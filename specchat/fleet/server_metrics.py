"""What a server tells of its guesses: in the answer itself, or on its page of metrics before and after.

vLLM, and llama.cpp by the same names, count guessed and accepted tokens. SGLang counts generated tokens and the passes
that verified; its acceptance gauges show its last seconds, whoever asked then, and only say how many tokens a guess
had. A page counts for all who ask, so what others did meanwhile is in the shares, never in the number of tokens.

`vllm/v1/spec_decode/metrics.py`, vLLM's docs/features/speculative_decoding/acceptance_metrics.md, and
`sglang/srt/observability/metrics_collector.py`, read in autumn 2026
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

SPEC_DECODE_PREFIX = "spec_decode_num_"
SGLANG_PREFIX = "sglang:"


@dataclass(frozen=True)
class SpecDecodeCounts:
    """Passes that verified guesses, guessed tokens, and those that held."""

    verify_steps: int
    draft_tokens: int
    accepted_tokens: int

    def scaled_to(self, tokens: int) -> SpecDecodeCounts | None:
        """For an answer of so many tokens; None when nothing was guessed."""
        if self.draft_tokens <= 0 or self.verify_steps <= 0 or not 0 <= self.accepted_tokens <= self.draft_tokens:
            return None
        written = self.accepted_tokens + self.verify_steps
        share = min(1.0, tokens / written)
        return SpecDecodeCounts(
            round(self.verify_steps * share), round(self.draft_tokens * share), round(self.accepted_tokens * share)
        )


def counts_of_response(metrics: Any) -> SpecDecodeCounts | None:
    """From `metrics.speculative_decoding`, which vLLM adds to an answer when it was started to."""
    told = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    if not isinstance(told, Mapping):
        return None
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    numbers = [told.get(name) for name in names]
    return SpecDecodeCounts(*numbers) if all(isinstance(each, int) for each in numbers) else None  # pyright: ignore[reportArgumentType]


def counts_between(before: str | None, after: str | None) -> SpecDecodeCounts | None:
    """From two pages of metrics; None when they do not tell."""
    if before is None or after is None:
        return None
    old, new = sample_sums(before), sample_sums(after)
    grown = defaultdict[str, float](float, {name: value - old.get(name, 0.0) for name, value in new.items()})
    if prefix := _metric_prefix(new):
        drafts, drafted, accepted = (
            grown[f"{prefix}{SPEC_DECODE_PREFIX}{name}_total"] for name in ("drafts", "draft_tokens", "accepted_tokens")
        )
        return SpecDecodeCounts(round(drafts), round(drafted), round(accepted))
    if f"{SGLANG_PREFIX}spec_verify_calls_total" in new:
        return _sglang_counts(new, grown)
    return None


def has_speculation(page: str) -> bool:
    """Whether a server with this page of metrics guesses at all."""
    known = sample_sums(page)
    return bool(_metric_prefix(known)) or known.get(f"{SGLANG_PREFIX}spec_accept_length", 0.0) > 0


def sample_sums(page: str) -> dict[str, float]:
    """Samples by name, summed over their labels; what cannot be read is left out."""
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except ValueError:
        pass  # a page that breaks off tells what it told before
    return sums


def _metric_prefix(known: Mapping[str, float]) -> str:
    """Whose counters these are: `vllm:`, `llamacpp:`, or nobody's."""
    name = f"{SPEC_DECODE_PREFIX}drafts_total"
    return next((each.removesuffix(name) for each in known if each.endswith(name)), "")


def _sglang_counts(new: Mapping[str, float], grown: Mapping[str, float]) -> SpecDecodeCounts:
    """Each pass writes what held and a token of its own; the first token of an answer comes from reading the prompt."""
    passes = grown[f"{SGLANG_PREFIX}spec_verify_calls_total"]
    answers = grown[f"{SGLANG_PREFIX}num_requests_total"]
    accepted = max(0.0, grown[f"{SGLANG_PREFIX}generation_tokens_total"] - answers - passes)
    width, rate = (
        new.get(f"{SGLANG_PREFIX}spec_num_draft_tokens", 0.0),
        new.get(f"{SGLANG_PREFIX}spec_accept_rate", 0.0),
    )
    drafted = passes * (width - 1) if width > 1 else accepted / rate if rate else accepted
    return SpecDecodeCounts(round(passes), round(max(drafted, accepted)), round(accepted))
