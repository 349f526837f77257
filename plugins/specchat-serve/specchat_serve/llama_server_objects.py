"""What llama-server adds to the answers of several APIs: timings, and the progress of a prompt. Knows no network."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from specchat.chat.events import PrefillProgress, Totals
from specchat_serve.json_fields import JsonObject

PROMPT_PROGRESS, RETURN_PROGRESS = "prompt_progress", "return_progress"


@dataclass
class PromptProgress:
    """How much of a prompt is read: first what was cached, then more each time, in the end all of it."""

    _told: int = -1  # tokens
    _started_at: float = field(default_factory=perf_counter)

    def on_event(self, prefill: PrefillProgress) -> Iterator[JsonObject]:
        for processed in (prefill.cached_tokens, prefill.processed_tokens):
            if processed > self._told:
                self._told = processed
                yield {
                    "total": prefill.prompt_tokens, "cache": prefill.cached_tokens, "processed": processed,
                    "time_ms": round((perf_counter() - self._started_at) * 1000),
                }  # fmt: skip


def timings(totals: Totals) -> JsonObject:
    """The speed of an answer that has ended."""
    return {
        **_pace("prompt", totals.prompt_tokens - totals.cached_tokens, totals.prefill_seconds),
        **_pace("predicted", totals.completion_tokens, totals.generation_seconds),
        "cache_n": totals.cached_tokens,
        "draft_n": totals.draft_tokens,
        "draft_n_accepted": sum(totals.accepted_by_drafter.values()),
    }


def _pace(name: str, tokens: int, seconds: float) -> JsonObject:
    """How many tokens in how many milliseconds; without a time, no speed."""
    speed = tokens / seconds if seconds else None
    return {f"{name}_n": tokens, f"{name}_ms": seconds * 1000, f"{name}_per_second": speed}
