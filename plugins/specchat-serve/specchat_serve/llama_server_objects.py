"""What llama-server adds to the answers of several APIs: timings, and the progress of a prompt. Knows no network."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from specchat.chat.events import PrefillProgress
from specchat_serve.answer import Answer
from specchat_serve.json_fields import JsonObject

PROMPT_PROGRESS, RETURN_PROGRESS = "prompt_progress", "return_progress"
TIMINGS, TIMINGS_PER_TOKEN = "timings", "timings_per_token"


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


def timings(answer: Answer) -> JsonObject:
    """The speed of an answer: that of its engine where it has ended, else by the clock of this server until now."""
    return _timings(answer) if answer.finished else _timings_until_now(answer)


def _timings_until_now(answer: Answer) -> JsonObject:
    prefill, now = answer.prefill or PrefillProgress(0, 0), perf_counter()
    begun_at = answer.writes_since or now
    read_seconds = begun_at - answer.started_at - answer.load_seconds
    return {
        **_pace("prompt", prefill.prompt_tokens - prefill.cached_tokens, read_seconds),
        **_pace("predicted", answer.written_tokens, now - begun_at),
        "cache_n": prefill.cached_tokens,
    }


def _timings(answer: Answer) -> JsonObject:
    totals = answer.totals
    return {
        **_pace("prompt", totals.prompt_tokens - totals.cached_tokens, totals.prefill_seconds),
        **_pace("predicted", totals.completion_tokens, answer.generation_seconds),
        "cache_n": totals.cached_tokens,
        "draft_n": totals.draft_tokens,
        "draft_n_accepted": sum(totals.accepted_by_drafter.values()),
    }


def _pace(name: str, tokens: int, seconds: float) -> JsonObject:
    """How many tokens in how many milliseconds; without a time, no speed."""
    speed = tokens / seconds if seconds else None
    return {f"{name}_n": tokens, f"{name}_ms": seconds * 1000, f"{name}_per_second": speed}
