"""An answer in the objects of OpenAI's API: whole, or in chunks. Knows no network."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specchat import __version__
from specchat.chat.events import Event, Failed, Finished, Routed, Text, Totals
from specchat.errors import HostError, failure
from specchat.host.protocol import new_id

Json = dict[str, Any]

OWNER = "specchat"
LAST = b"data: [DONE]\n\n"


def models_page(model: str, created: int, window: int) -> Json:
    """The page `/v1/models`. `window` as vLLM tells it; 0 when it is not known yet."""
    return {"object": "list", "data": [model_entry(model, created, window)]}


def model_entry(model: str, created: int, window: int) -> Json:
    """One model."""
    known = {"max_model_len": window} if window else {}
    return {"id": model, "object": "model", "created": created, "owned_by": OWNER, **known}


def line(told: Json) -> bytes:
    """One event of a stream."""
    return f"data: {json.dumps(told)}\n\n".encode()


@dataclass
class Telling:
    """One answer: what was heard of it so far, and who tells it."""

    model: str
    tells_usage: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{new_id()}")
    created: int = field(default_factory=lambda: int(time.time()))
    text: list[str] = field(default_factory=list[str])
    routed: Routed | None = None
    finished: Finished | None = None

    def hear(self, event: Event) -> str:
        """More of the answer; its text. Our own errors are raised."""
        match event:
            case Text(text=text):
                self.text.append(text)
                return text
            case Routed():
                self.routed = event
            case Finished(reason="cancelled"):
                raise HostError("the answer was stopped here, not by its client; ask again")
            case Finished():
                self.finished = event
            case Failed(message=message, exit_code=code):
                raise failure(message, code)
            case _:
                pass
        return ""

    def completion(self) -> Json:
        """The whole answer, once it has finished."""
        assert self.finished is not None
        message = {"role": "assistant", "content": "".join(self.text), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finished.reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(self.finished.totals)}

    def first_chunk(self) -> Json:
        """Who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def chunk(self, text: str) -> Json:
        """More text."""
        return self._chunk({"content": text})

    def last_chunks(self) -> Iterator[Json]:
        """Why it ended, and what it cost where that is wanted."""
        assert self.finished is not None
        yield self._chunk({}, self.finished.reason)
        if self.tells_usage:
            usage = self._usage(self.finished.totals)
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}

    def _chunk(self, delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        later: Json = {"usage": None} if self.tells_usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **later}

    def _head(self, kind: str) -> Json:
        fingerprint = f"specchat-{__version__}"
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "system_fingerprint": fingerprint,
        }  # fmt: skip

    def _usage(self, totals: Totals) -> Json:
        return {
            "prompt_tokens": totals.prompt_tokens,
            "completion_tokens": totals.tokens,
            "total_tokens": totals.prompt_tokens + totals.tokens,
            "prompt_tokens_details": {"cached_tokens": totals.reused_tokens},
            "specchat": self._speculation(totals),
        }

    def _speculation(self, totals: Totals) -> Json:
        """What guessing brought, and the seed that gives this answer again."""
        times_plain = totals.times_plain
        return {
            "drafted": totals.drafted,
            "accepted": sum(totals.accepted.values()),
            "accepted_by": dict(totals.accepted),
            "steps": totals.steps,
            "tokens_per_pass": round(totals.tokens_per_pass, 2),
            "tok_per_s": round(totals.tokens_per_second, 1),
            "times_plain": None if times_plain is None else round(times_plain, 2),
            "ttft_ms": round(1000 * totals.first_token_seconds),
            "variant": self.routed.variant if self.routed else "",
            "why": totals.why or (self.routed.reason if self.routed else ""),
            "seed": self.routed.seed if self.routed else None,
        }
