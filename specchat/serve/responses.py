"""Builds the response objects of OpenAI's API: complete, in chunks, or an error. Knows no network."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specchat import __version__
from specchat.chat.events import TRUNCATED_REASONS, Event, Failed, Finished, Routed, TextDelta, ThinkingDelta, Totals
from specchat.chat.turn_summary import speedup_to_json
from specchat.errors import ContextError, HostError, SpecchatError, UsageError, error_with_exit_code
from specchat.host.protocol import new_id

INTERNAL_SERVER_ERROR = 500
SERVICE_UNAVAILABLE = 503
STATUS_BY_EXIT_CODE = {UsageError.exit_code: 400, ContextError.exit_code: 400, 7: SERVICE_UNAVAILABLE}
ERROR_CODE_BY_EXIT_CODE = {ContextError.exit_code: "context_length_exceeded", 7: "engine_unavailable"}
JsonObject = dict[str, Any]

OWNED_BY = "specchat"
DONE_EVENT = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class ApiError:
    """An error response. `param` is the wrong field of the request, `code` is for programs."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        error_type = "invalid_request_error" if self.status < INTERNAL_SERVER_ERROR else "server_error"
        return {"error": {"message": self.message, "type": error_type, "param": self.param, "code": self.code}}


class RequestError(UsageError):
    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.api_error = ApiError(status, message, param, code)


def to_api_error(error: SpecchatError) -> ApiError:
    if isinstance(error, RequestError):
        return error.api_error
    status = STATUS_BY_EXIT_CODE.get(error.exit_code, INTERNAL_SERVER_ERROR)
    return ApiError(status, str(error), code=ERROR_CODE_BY_EXIT_CODE.get(error.exit_code))


def models_response(model: str, created_at: int, context_window: int) -> JsonObject:
    """The body of `/v1/models`. A `context_window` of 0 is unknown."""
    return {"object": "list", "data": [model_entry(model, created_at, context_window)]}


def model_entry(model: str, created_at: int, context_window: int) -> JsonObject:
    """One model; `max_model_len` as in vLLM."""
    limits = {"max_model_len": context_window} if context_window else {}
    return {"id": model, "object": "model", "created": created_at, "owned_by": OWNED_BY, **limits}


def sse_event(payload: JsonObject) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


@dataclass
class ResponseBuilder:
    model: str
    includes_usage: bool = False
    unsent_prefix: str = ""  # of the answer: the client gave it, and gets what follows
    id: str = field(default_factory=lambda: f"chatcmpl-{new_id()}")
    created_at: int = field(default_factory=lambda: int(time.time()))
    text_parts: list[str] = field(default_factory=list[str])
    thinking_parts: list[str] = field(default_factory=list[str])
    routed: Routed | None = None
    finished: Finished | None = None

    def on_event(self, event: Event) -> JsonObject:
        """Process an event; returns the delta of its text, if it has one. A Failed event raises its error.

        Thinking is never part of the content: it has a field of its own, as with vLLM and DeepSeek.
        """
        match event:
            case TextDelta(text=text):
                count = min(len(self.unsent_prefix), len(text))
                self.unsent_prefix = self.unsent_prefix[count:]
                self.text_parts.append(text[count:])
                return {"content": text[count:]} if text[count:] else {}
            case ThinkingDelta(text=text):
                self.thinking_parts.append(text)
                return {"reasoning_content": text}
            case Routed():
                self.routed = event
            case Finished(finish_reason="cancelled"):
                raise HostError("the server cancelled the answer; ask again")
            case Finished():
                self.finished = event
            case Failed(message=message, exit_code=code):
                raise error_with_exit_code(message, code)
            case _:
                pass
        return {}

    def completion(self) -> JsonObject:
        assert self.finished is not None
        thinking = {"reasoning_content": "".join(self.thinking_parts)} if self.thinking_parts else {}
        message = {"role": "assistant", "content": "".join(self.text_parts), "refusal": None, **thinking}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}
        return {
            **self._common_fields("chat.completion"),
            "choices": [choice],
            "usage": self._usage(self.finished.totals),
        }

    def last_chunks(self) -> Iterator[JsonObject]:
        """The chunk with the finish reason, and the one with the usage if the client requested it."""
        assert self.finished is not None
        yield self.chunk({}, self._finish_reason())
        if self.includes_usage:
            usage = self._usage(self.finished.totals)
            yield {**self._common_fields("chat.completion.chunk"), "choices": [], "usage": usage}

    def _finish_reason(self) -> str:
        """In the API's words: it has none for an answer that repeats itself."""
        assert self.finished is not None
        return "length" if self.finished.finish_reason in TRUNCATED_REASONS else self.finished.finish_reason

    def chunk(self, delta: JsonObject, reason: str | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage: JsonObject = {"usage": None} if self.includes_usage else {}
        return {**self._common_fields("chat.completion.chunk"), "choices": [choice], **usage}

    def _common_fields(self, object_type: str) -> JsonObject:
        fingerprint = f"specchat-{__version__}"
        return {
            "id": self.id, "object": object_type, "created": self.created_at, "model": self.model,
            "system_fingerprint": fingerprint,
        }  # fmt: skip

    def _usage(self, totals: Totals) -> JsonObject:
        return {
            "prompt_tokens": totals.prompt_tokens,
            "completion_tokens": totals.completion_tokens,
            "total_tokens": totals.prompt_tokens + totals.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": totals.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": totals.thinking_tokens},
            "specchat": self._speculation_stats(totals),
        }

    def _speculation_stats(self, totals: Totals) -> JsonObject:
        return {
            "draft_tokens": totals.draft_tokens,
            "accepted_tokens": sum(totals.accepted_by_drafter.values()),
            "accepted_by_drafter": dict(totals.accepted_by_drafter),
            "steps": totals.steps,
            "tokens_per_step": round(totals.tokens_per_step, 2),
            "tokens_per_second": round(totals.tokens_per_second, 1),
            **speedup_to_json(totals),
            "ttft_ms": round(1000 * totals.ttft_seconds),
            "variant": self.routed.variant if self.routed else "",
            "choice_reason": totals.drafter_report or (self.routed.reason if self.routed else ""),
            "seed": self.routed.seed if self.routed else None,
            "explanation": self.finished.explanation if self.finished else "",
        }
