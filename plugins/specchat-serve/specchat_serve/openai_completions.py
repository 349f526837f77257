"""OpenAI's `/v1/completions`: a prompt, and a suffix for a gap, to a completion. Knows no network and no model.

The completions are those of editors: greedy, without a chat template.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.events import TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.host.protocol import new_id
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.json_fields import Border, JsonObject, Refusals, checked_body
from specchat_serve.openai_chat import SILENT_FIELDS
from specchat_serve.openai_objects import DONE_EVENT, FINGERPRINT, completion_usage, error_body
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event

DEFAULT_MAX_TOKENS = 16  # as OpenAI's
MAX_CONTEXT_TOKENS = 2**20  # more than any context window, which is the limit then
TIMEOUT_SECONDS = 600.0
IS_GREEDY = "completions are greedy, as those of editors; leave it out, or use /v1/chat/completions"
REFUSED: Refusals = {
    "n": ((1,), "only one completion per request"),
    "best_of": ((1,), "only one completion per request"),
    "echo": ((False,), "the prompt is not repeated; put it before the completion"),
    "logprobs": ((), "probabilities are not available"),
    "logit_bias": (({},), "not supported"),
    "temperature": ((0,), IS_GREEDY),
    "frequency_penalty": ((0,), IS_GREEDY),
    "presence_penalty": ((0,), IS_GREEDY),
    "repetition_penalty": ((1,), IS_GREEDY),
}
BORDER = Border(
    used=frozenset(["prompt", "suffix", "max_tokens", "stop", "stream", "stream_options"]),
    refused=REFUSED,
    left_out=dict.fromkeys(["top_p", "top_k", "min_p", "seed"], "completions are greedy"),
    silent=SILENT_FIELDS,
)


@dataclass
class CompletionReply:
    model: str
    answer: Answer = field(default_factory=Answer)
    includes_usage: bool = False  # in the last chunk of a stream
    content_type: str = EVENT_STREAM
    id: str = field(default_factory=lambda: f"cmpl-{new_id()}")
    created_at: int = field(default_factory=lambda: int(time.time()))

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        return sse_event(self._object(delta.text, None)) if isinstance(delta, TextDelta) else b""

    def sign_of_life(self, stage: str) -> bytes:
        return sse_comment(stage)

    def end(self) -> bytes:
        last = sse_event(self._object("", self.answer.finish_reason))
        usage = {**self._object("", None), "choices": [], "usage": completion_usage(self.answer)}
        return last + (sse_event(usage) if self.includes_usage else b"") + DONE_EVENT

    def failure(self, api_error: ApiError) -> bytes:
        return sse_event(error_body(api_error))

    def whole(self) -> JsonObject:
        text, reason = self.answer.text, self.answer.finish_reason
        return {**self._object(text, reason), "usage": completion_usage(self.answer)}

    def _object(self, text: str, reason: str | None) -> JsonObject:
        return {
            "id": self.id, "object": "text_completion", "created": self.created_at, "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}],
        }  # fmt: skip


def translate_completion(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/v1/completions`; RequestError for a wrong or unsupported field."""
    body = checked_body(fields, served_models, BORDER)
    max_tokens = body.number("max_tokens", int)
    limit = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    request = completion_request(_parse_prompt(body.get("prompt")), body.text("suffix"), limit, body.stop())
    includes_usage = body.object("stream_options").flag("include_usage")
    reply = CompletionReply(served_models[0], Answer(notices=body.notices), includes_usage)
    return TranslatedRequest(request, reply, body.flag("stream"))


def completion_request(prompt: str, suffix: str, max_tokens: int, stop: tuple[str, ...]) -> FimRequest:
    """A completion with all of the context window and without the time limit of editors."""
    return FimRequest(
        prompt, suffix, max_tokens, max_context_tokens=MAX_CONTEXT_TOKENS, timeout_seconds=TIMEOUT_SECONDS, stop=stop
    )


def _parse_prompt(prompt: Any) -> str:
    match prompt:
        case str() as text if text:
            return text
        case [str() as text] if text:
            return text
        case [str(), *_]:
            raise RequestError("prompt: only one prompt per request", "prompt", code="unsupported_parameter")
        case [int(), *_] | [[int(), *_], *_]:
            raise RequestError("prompt: give a text; tokens are not supported", "prompt", code="unsupported_parameter")
        case _:
            raise RequestError("prompt: give a text that is not empty", "prompt")
