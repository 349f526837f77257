"""Waiting as a front end does: questions to the engine process over its socket, timed on this side of it. No torch.

The conversations are deleted when they are answered, and `auto` is asked before plain decoding: who copies from earlier
conversations must not find the same answer there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median

from specchat.bench.latency import TimedAnswer, quantile, time_answer
from specchat.chat.request import Request
from specchat.errors import SpecchatError
from specchat.host.client import Conversation, SessionRequest

SESSION_KIND = "bench"  # of the conversations, which is not what `-c` goes on from
VARIANTS = ("auto", "plain")
SEED = 7


@dataclass(frozen=True)
class ClientLatency:
    """All answers of one variant on one kind of prompt, as a client heard them."""

    kind: str
    variant: str
    answers: tuple[TimedAnswer, ...]

    @property
    def median_ttft_seconds(self) -> float:
        """Seconds until the first text, of the middle answer."""
        return median(heard.ttft_seconds for heard in self.answers)

    @property
    def median_request_seconds(self) -> float:
        """Seconds until the middle answer was whole."""
        return median(heard.request_seconds for heard in self.answers)

    def text_interval(self, fraction: float) -> float:
        """Seconds between texts that so large a share does not exceed."""
        return quantile([gap for heard in self.answers for gap in heard.text_intervals], fraction)


def measure_client_latency(
    session_request: SessionRequest,
    prompts: Mapping[str, Sequence[Request]],
    count: int,
    max_tokens: int,
    progress: Callable[[str], None] = lambda _what: None,
) -> list[ClientLatency]:
    """Ask the first `count` prompts of each kind that can be answered. HostError when no engine process can be had."""
    waited, is_warm = list[ClientLatency](), False
    for kind, requests in prompts.items():
        answers: dict[str, list[TimedAnswer]] = {variant: [] for variant in VARIANTS}
        for request in requests:
            if len(answers[VARIANTS[0]]) == count:
                break
            asked = replace(request, max_tokens=max_tokens, seed=SEED)
            try:
                if not is_warm:
                    _time_request(
                        session_request, replace(asked, variant="plain")
                    )  # the first question waits for the models
                is_warm = True
                heard = {
                    variant: _time_request(session_request, replace(asked, variant=variant)) for variant in VARIANTS
                }
            except SpecchatError as error:
                progress(f"{kind} through the engine process: left out: {error}")
                continue
            for variant, each in heard.items():
                answers[variant].append(each)
                progress(f"{kind} through the engine process, {variant}: {each.request_seconds:.2f} s")
        waited += [ClientLatency(kind, variant, tuple(heard)) for variant, heard in answers.items() if heard]
    return waited


def _time_request(session_request: SessionRequest, request: Request) -> TimedAnswer:
    with closing(Conversation(replace(session_request, kind=SESSION_KIND))) as conversation:
        try:
            return time_answer(conversation.ask(request))
        finally:
            conversation.call("delete")


def as_table(latencies: Sequence[ClientLatency]) -> str:
    """Markdown."""
    lines = [
        "| kind | variant | answers | first text ms | p50 | p95 | p99 between texts ms | request s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in latencies:
        shares = " | ".join(f"{1000 * row.text_interval(share):.1f}" for share in (0.5, 0.95, 0.99))
        lines.append(
            f"| {row.kind} | {row.variant} | {len(row.answers)} | {1000 * row.median_ttft_seconds:.1f} | {shares} | {row.median_request_seconds:.2f} |"
        )
    return "\n".join(lines)


def as_rows(latencies: Sequence[ClientLatency]) -> list[dict[str, object]]:
    """The same as plain values, in seconds."""
    return [
        {
            "kind": row.kind,
            "variant": row.variant,
            "answers": len(row.answers),
            "first_text_seconds": round(row.median_ttft_seconds, 6),
            "between_texts_p50_seconds": round(row.text_interval(0.50), 6),
            "between_texts_p95_seconds": round(row.text_interval(0.95), 6),
            "between_texts_p99_seconds": round(row.text_interval(0.99), 6),
            "request_seconds": round(row.median_request_seconds, 6),
        }
        for row in latencies
    ]
