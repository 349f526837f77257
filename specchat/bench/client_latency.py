"""Latency as a client sees it: questions to the engine process over its socket, timed on the client side. No torch.

Conversations are deleted after their answer, and `auto` runs before plain decoding: a drafter that copies from past
conversations must not find the same answer there.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median

from specchat.bench.columns import markdown_table
from specchat.bench.latency import TimedAnswer, quantile, time_answer
from specchat.chat.request import Request
from specchat.errors import SpecchatError
from specchat.host.client import Conversation, SessionRequest

SESSION_KIND = "bench"  # so that `-c` does not continue them
VARIANTS = ("auto", "plain")
SEED = 7


@dataclass(frozen=True)
class ClientLatency:
    """The answers of one variant to one kind of prompt, as a client received them."""

    kind: str
    variant: str
    answers: tuple[TimedAnswer, ...]

    @property
    def median_ttft_seconds(self) -> float:
        return median(answer.ttft_seconds for answer in self.answers)

    @property
    def median_request_seconds(self) -> float:
        return median(answer.request_seconds for answer in self.answers)

    def text_interval(self, fraction: float) -> float:
        return quantile([seconds for answer in self.answers for seconds in answer.text_intervals], fraction)


def measure_client_latency(
    session_request: SessionRequest,
    prompts: Mapping[str, Sequence[Request]],
    count: int,
    max_tokens: int,
    progress: Callable[[str], None] = lambda _message: None,
) -> list[ClientLatency]:
    """Ask the first `count` prompts of each kind. HostError when no engine process can be started."""
    latencies, is_warm = list[ClientLatency](), False
    for kind, requests in prompts.items():
        answers: dict[str, list[TimedAnswer]] = {variant: [] for variant in VARIANTS}
        for request in requests:
            if len(answers[VARIANTS[0]]) == count:
                break
            timed_request = replace(request, max_tokens=max_tokens, seed=SEED)
            try:
                if not is_warm:
                    _time_request(session_request, replace(timed_request, variant="plain"))  # loads the models
                is_warm = True
                timed = {
                    variant: _time_request(session_request, replace(timed_request, variant=variant))
                    for variant in VARIANTS
                }
            except SpecchatError as error:
                progress(f"{kind} through the engine process: left out: {error}")
                continue
            for variant, answer in timed.items():
                answers[variant].append(answer)
                progress(f"{kind} through the engine process, {variant}: {answer.request_seconds:.2f} s")
        latencies += [ClientLatency(kind, variant, tuple(timed)) for variant, timed in answers.items() if timed]
    return latencies


def _time_request(session_request: SessionRequest, request: Request) -> TimedAnswer:
    with closing(Conversation(replace(session_request, kind=SESSION_KIND))) as conversation:
        try:
            return time_answer(conversation.ask(request))
        finally:
            conversation.call("delete")


def as_table(latencies: Sequence[ClientLatency]) -> str:
    header = ["kind", "variant", "answers", "TTFT ms", "p50", "p95", "p99 between texts ms", "request s"]
    return markdown_table(header, map(_cells, latencies))


def _cells(row: ClientLatency) -> list[str]:
    seconds = (row.median_ttft_seconds, *(row.text_interval(share) for share in (0.5, 0.95, 0.99)))
    milliseconds = [f"{1000 * each:.1f}" for each in seconds]
    return [row.kind, row.variant, str(len(row.answers)), *milliseconds, f"{row.median_request_seconds:.2f}"]


def as_rows(latencies: Sequence[ClientLatency]) -> list[dict[str, object]]:
    """Plain values, in seconds."""
    return [
        {
            "kind": row.kind,
            "variant": row.variant,
            "answers": len(row.answers),
            "ttft_seconds": round(row.median_ttft_seconds, 6),
            "text_interval_p50": round(row.text_interval(0.50), 6),
            "text_interval_p95": round(row.text_interval(0.95), 6),
            "text_interval_p99": round(row.text_interval(0.99), 6),
            "request_seconds": round(row.median_request_seconds, 6),
        }
        for row in latencies
    ]
