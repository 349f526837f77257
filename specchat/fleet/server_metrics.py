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

SPEC_DECODE = "spec_decode_num_"
SGLANG = "sglang:"


@dataclass(frozen=True)
class Guessed:
    """Passes that verified guesses, guessed tokens, and those that held."""

    passes: int
    drafted: int
    accepted: int

    def within(self, tokens: int) -> Guessed | None:
        """For an answer of so many tokens; None when nothing was guessed."""
        if self.drafted <= 0 or self.passes <= 0 or not 0 <= self.accepted <= self.drafted:
            return None
        written = self.accepted + self.passes
        share = min(1.0, tokens / written)
        return Guessed(round(self.passes * share), round(self.drafted * share), round(self.accepted * share))


def of_answer(metrics: Any) -> Guessed | None:
    """From `metrics.speculative_decoding`, which vLLM adds to an answer when it was started to."""
    told = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    if not isinstance(told, Mapping):
        return None
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    numbers = [told.get(name) for name in names]
    return Guessed(*numbers) if all(isinstance(each, int) for each in numbers) else None  # pyright: ignore[reportArgumentType]


def between(before: str | None, after: str | None) -> Guessed | None:
    """From two pages of metrics; None when they do not tell."""
    if before is None or after is None:
        return None
    old, new = counts(before), counts(after)
    grown = defaultdict[str, float](float, {name: value - old.get(name, 0.0) for name, value in new.items()})
    if prefix := _prefix(new):
        drafts, drafted, accepted = (
            grown[f"{prefix}{SPEC_DECODE}{name}_total"] for name in ("drafts", "draft_tokens", "accepted_tokens")
        )
        return Guessed(round(drafts), round(drafted), round(accepted))
    if f"{SGLANG}spec_verify_calls_total" in new:
        return _of_sglang(new, grown)
    return None


def guesses(page: str) -> bool:
    """Whether a server with this page of metrics guesses at all."""
    known = counts(page)
    return bool(_prefix(known)) or known.get(f"{SGLANG}spec_accept_length", 0.0) > 0


def counts(page: str) -> dict[str, float]:
    """Samples by name, summed over their labels; what cannot be read is left out."""
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except ValueError:
        pass  # a page that breaks off tells what it told before
    return sums


def _prefix(known: Mapping[str, float]) -> str:
    """Whose counters these are: `vllm:`, `llamacpp:`, or nobody's."""
    name = f"{SPEC_DECODE}drafts_total"
    return next((each.removesuffix(name) for each in known if each.endswith(name)), "")


def _of_sglang(new: Mapping[str, float], grown: Mapping[str, float]) -> Guessed:
    """Each pass writes what held and a token of its own; the first token of an answer comes from reading the prompt."""
    passes = grown[f"{SGLANG}spec_verify_calls_total"]
    answers = grown[f"{SGLANG}num_requests_total"]
    accepted = max(0.0, grown[f"{SGLANG}generation_tokens_total"] - answers - passes)
    width, rate = new.get(f"{SGLANG}spec_num_draft_tokens", 0.0), new.get(f"{SGLANG}spec_accept_rate", 0.0)
    drafted = passes * (width - 1) if width > 1 else accepted / rate if rate else accepted
    return Guessed(round(passes), round(max(drafted, accepted)), round(accepted))
