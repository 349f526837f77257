"""The own API of llama-server, for plugins of editors: `/completion` and `/infill` to requests, `/props` and `/slots`.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md. Knows no network and no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat import __version__
from specchat.chat.events import TextDelta
from specchat.chat.fim_request import MAX_FIM_TOKENS, FimRequest
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.json_fields import Body, Border, JsonObject, checked_body
from specchat_serve.ollama_api import SAMPLING_OPTIONS
from specchat_serve.openai_chat import SILENT_FIELDS
from specchat_serve.openai_completions import MAX_CONTEXT_TOKENS, TIMEOUT_SECONDS, completion_request
from specchat_serve.openai_objects import error_body
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event

PROMPT, PREFIX, SUFFIX = "prompt", "input_prefix", "input_suffix"
NO_LIMIT = 2**20  # more than any context window, which is the limit then
NO_GRAMMAR = "completions have no form; use /v1/chat/completions"
SHARED = frozenset([PROMPT, "n_predict", "stream", "stop", "seed", "temperature", *SAMPLING_OPTIONS])
SILENT = SILENT_FIELDS | {
    "samplers", "response_fields", "t_max_prompt_ms", "t_max_predict_ms", "n_keep", "n_indent", "cache_prompt", "lora"
}  # fmt: skip
REFUSED = {
    "grammar": ((), NO_GRAMMAR),
    "json_schema": ((), NO_GRAMMAR),
    "logit_bias": ((), "the logits of single tokens cannot be changed"),
    "image_data": ((), "the model reads text only"),
}
COMPLETION_BORDER = Border(SHARED, REFUSED, silent=SILENT)
INFILL_BORDER = Border(
    SHARED | {PREFIX, SUFFIX},
    REFUSED,
    left_out={"input_extra": "the text around the gap is all that is read"},
    silent=SILENT,
)


@dataclass
class CompletionReply:
    model: str
    answer: Answer = field(default_factory=Answer)
    content_type: str = EVENT_STREAM

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        if not isinstance(delta, TextDelta):
            return b""
        return sse_event({"index": 0, "content": delta.text, "stop": False, "id_slot": 0})

    def sign_of_life(self, stage: str) -> bytes:
        return sse_comment(stage)

    def end(self) -> bytes:
        return sse_event(self._last(""))

    def failure(self, api_error: ApiError) -> bytes:
        return sse_event(error_body(api_error))

    def whole(self) -> JsonObject:
        return self._last(self.answer.text)

    def _last(self, content: str) -> JsonObject:
        totals = self.answer.totals
        return {
            "index": 0, "content": content, "stop": True, "id_slot": 0, "model": self.model,
            "tokens_predicted": totals.completion_tokens, "tokens_evaluated": totals.prompt_tokens,
            "tokens_cached": totals.cached_tokens, "truncated": False,
            "stop_type": "limit" if self.answer.is_truncated else "eos", "stopping_word": "",
            "timings": self._timings(), "specchat": self.answer.speculation_stats(),
        }  # fmt: skip

    def _timings(self) -> JsonObject:
        totals = self.answer.totals
        read = totals.prompt_tokens - totals.cached_tokens
        return {
            **_pace("prompt", read, totals.prefill_seconds),
            **_pace("predicted", totals.completion_tokens, totals.generation_seconds),
            "cache_n": totals.cached_tokens,
            "draft_n": totals.draft_tokens,
            "draft_n_accepted": sum(totals.accepted_by_drafter.values()),
        }


def _pace(name: str, tokens: int, seconds: float) -> JsonObject:
    """How many tokens in how many milliseconds; without a time, no speed."""
    speed = tokens / seconds if seconds else None
    return {f"{name}_n": tokens, f"{name}_ms": seconds * 1000, f"{name}_per_second": speed}


def translate_llama_completion(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/completion`; RequestError for a wrong or refused field."""
    body = checked_body(fields, served_models, COMPLETION_BORDER)
    if not isinstance(body.get(PROMPT), str):
        raise RequestError(f"{PROMPT}: give a text that is not empty", PROMPT)
    limit = body.number("n_predict", int)
    request = completion_request(body.text(PROMPT), NO_LIMIT if limit is None else limit, body, names=SAMPLING_OPTIONS)
    return _translated(body, request, served_models)


def translate_infill(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/infill`: a gap between two texts, whose beginning is the prompt; RequestError for a wrong field."""
    body = checked_body(fields, served_models, INFILL_BORDER)
    limit = body.number("n_predict", int)
    request = FimRequest(
        body.text(PREFIX) + body.text(PROMPT), body.text(SUFFIX), min(MAX_FIM_TOKENS, limit or MAX_FIM_TOKENS),
        max_context_tokens=MAX_CONTEXT_TOKENS, timeout_seconds=TIMEOUT_SECONDS, stop=body.stop(),
    )  # fmt: skip
    return _translated(body, request, served_models)


def _translated(body: Body, request: FimRequest, served_models: Sequence[str]) -> TranslatedRequest:
    reply = CompletionReply(served_models[0], Answer(notices=body.notices))
    return TranslatedRequest(request, reply, body.flag("stream"))


def props_body(model: str, context_window: int, slots: int) -> JsonObject:
    """The body of `/props`. A `context_window` of 0 is unknown."""
    return {
        "default_generation_settings": {"n_ctx": context_window},
        "total_slots": slots,
        "model_alias": model,
        "model_path": model,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"specchat-{__version__}",
    }


def slots_body(slots: int, running: int, context_window: int) -> list[dict[str, Any]]:
    """The body of `/slots`: so many answers at once, of which some run."""
    return [{"id": slot, "n_ctx": context_window, "is_processing": slot < running} for slot in range(slots)]
