"""OpenAI's `/v1/completions`: a prompt, and a suffix for a gap, to a completion. Knows no network and no model.

A prompt is the whole prompt: its template is the client's, and control tokens in it are control tokens. A gap between
prompt and suffix is filled as in editors, greedily, with the control tokens of the model.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.events import TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.host.protocol import new_id
from specchat.profile import Sampling
from specchat.profile.validation import InvalidValueError
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.json_fields import SAMPLING_FIELDS, Body, Border, JsonObject, Refusals, checked_body
from specchat_serve.openai_chat import SILENT_FIELDS
from specchat_serve.openai_objects import DONE_EVENT, FINGERPRINT, completion_usage, error_body
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event

DEFAULT_MAX_TOKENS = 16  # as OpenAI's
MAX_CONTEXT_TOKENS = 2**20  # more than any context window, which is the limit then
TIMEOUT_SECONDS = 600.0
IS_GREEDY = "a gap is filled greedily, as in editors; leave it out"
REFUSED: Refusals = {
    "n": ((1,), "only one completion per request"),
    "best_of": ((1,), "only one completion per request"),
    "echo": ((False,), "the prompt is not repeated; put it before the completion"),
    "logprobs": ((), "probabilities are not available"),
    "logit_bias": ((), "the logits of single tokens cannot be changed"),
}
GREEDY: Refusals = {
    name: ((neutral,), IS_GREEDY)
    for name, neutral in {
        "temperature": 0, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "repeat_penalty": 1,
    }.items()
}  # fmt: skip
BORDER = Border(
    used=frozenset([
        "prompt", "suffix", "max_tokens", "stop", "stream", "stream_options", "temperature", "seed", *SAMPLING_FIELDS
    ]),
    refused=REFUSED,
    silent=SILENT_FIELDS,
)  # fmt: skip


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
    request = completion_request(_parse_prompt(body.get("prompt")), limit, body)
    includes_usage = body.object("stream_options").flag("include_usage")
    reply = CompletionReply(served_models[0], Answer(notices=body.notices), includes_usage)
    return TranslatedRequest(request, reply, body.flag("stream"))


def completion_request(
    prompt: str, max_tokens: int, body: Body, options: Body | None = None, names: Mapping[str, str] = SAMPLING_FIELDS
) -> FimRequest:
    """A completion with all of the context window and without the time limit of editors.

    `options` is the object with the sampling and the stop texts, by default the body itself.
    """
    chosen, suffix = body if options is None else options, body.text("suffix")
    if suffix:
        chosen.check(Border(frozenset(chosen) - GREEDY.keys(), GREEDY))
    given = chosen.sampling_numbers({"temperature": "temperature", **names})
    try:
        sampling = Sampling(**given, seed=chosen.number("seed", int))
    except InvalidValueError as error:
        raise RequestError(str(error)) from None
    return FimRequest(
        prompt, suffix, max_tokens, max_context_tokens=MAX_CONTEXT_TOKENS, timeout_seconds=TIMEOUT_SECONDS,
        stop=chosen.stop(), is_raw=not suffix, sampling=Sampling() if suffix else sampling,
    )  # fmt: skip


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
