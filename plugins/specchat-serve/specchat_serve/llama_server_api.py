"""The own API of llama-server, for plugins of editors and evaluations: completions, gaps, tokens, templates, facts.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md. Knows no network and no model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from specchat import __version__
from specchat.chat.events import CommittedToken, TextDelta
from specchat.chat.fim_request import MAX_FIM_TOKENS, FimRequest
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.engine_request import EngineRequest
from specchat_serve.json_fields import LOGIT_BIAS, Body, Border, JsonObject, checked_body
from specchat_serve.llama_server_objects import timings
from specchat_serve.ollama_api import SAMPLING_OPTIONS
from specchat_serve.openai_chat import BORDER as CHAT_BORDER
from specchat_serve.openai_chat import SILENT_FIELDS, translate_chat
from specchat_serve.openai_completions import MAX_CONTEXT_TOKENS, TIMEOUT_SECONDS, completion_request, is_prompt
from specchat_serve.openai_objects import error_body
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event
from specchat_serve.token_logprobs import checked_count, token_objects

PROMPT, PREFIX, SUFFIX = "prompt", "input_prefix", "input_suffix"
CONTENT, TOKENS, N_PROBS = "content", "tokens", "n_probs"
NO_LIMIT = 2**20  # more than any context window, which is the limit then
NO_GRAMMAR = "completions have no form; use /v1/chat/completions"
SHARED = frozenset([PROMPT, "n_predict", "stream", "stop", "seed", "temperature", *SAMPLING_OPTIONS])
SILENT = SILENT_FIELDS | {
    "samplers", "response_fields", "t_max_prompt_ms", "t_max_predict_ms", "n_keep", "n_indent", "cache_prompt", "lora"
}  # fmt: skip
REFUSED = {
    "grammar": ((), NO_GRAMMAR),
    "json_schema": ((), NO_GRAMMAR),
    "image_data": ((), "the model reads text only"),
}
COMPLETION_BORDER = Border(SHARED | {N_PROBS, LOGIT_BIAS}, REFUSED, silent=SILENT)
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
    top_logprobs: int = 0  # how many likely tokens stand beside each token
    content_type: str = EVENT_STREAM

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        if not isinstance(delta, TextDelta):
            return b""
        known = self._probabilities()
        return sse_event({"index": 0, "content": delta.text, **known, "stop": False, "id_slot": 0})

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
            "index": 0, "content": content, **self._probabilities(), "stop": True, "id_slot": 0, "model": self.model,
            "tokens_predicted": totals.completion_tokens, "tokens_evaluated": totals.prompt_tokens,
            "tokens_cached": totals.cached_tokens, "truncated": False,
            "stop_type": "limit" if self.answer.is_truncated else "eos", "stopping_word": "",
            "timings": timings(totals), "specchat": self.answer.speculation_stats(),
        }  # fmt: skip

    def _probabilities(self) -> JsonObject:
        """Of the tokens of the text that no chunk has had; their ids stand only with the tokens of the text."""
        if not self.answer.keeps_tokens:
            return {}
        tokens = self.answer.new_tokens()
        objects = zip(tokens, token_objects(tokens, self.top_logprobs), strict=True)
        return {"completion_probabilities": [{"id": token.token_id, **each} for token, each in objects]}


def translate_llama_completion(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/completion`; RequestError for a wrong or refused field."""
    body = checked_body(fields, served_models, COMPLETION_BORDER)
    prompt = body.get(PROMPT)
    if not is_prompt(prompt):
        raise RequestError(f"{PROMPT}: give a text that is not empty, or the ids of tokens", PROMPT)
    prompt = prompt if isinstance(prompt, str) else tuple(cast("list[int]", prompt))
    limit, top = body.number("n_predict", int), checked_count(body.number(N_PROBS, int) or 0, N_PROBS)
    request = completion_request(prompt, NO_LIMIT if limit is None else limit, body, names=SAMPLING_OPTIONS)
    return _translated(body, replace(request, wants_probabilities=top > 0), served_models, top)


def translate_tokenize(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/tokenize`: a text to the ids of its tokens, or to objects that have their texts, too."""
    names = ("add_special", "parse_special", "with_pieces")
    body = checked_body(fields, served_models, Border(frozenset([CONTENT, *names]), silent=SILENT))
    adds_start, parses_special, has_pieces = (
        body.flag(name, default=default) for name, default in zip(names, (False, True, False), strict=True)
    )

    def tokens(answer: Answer) -> JsonObject:
        found = answer.echoed.tokens if answer.echoed else ()
        return {TOKENS: [_piece(token) if has_pieces else token.token_id for token in found]}

    request = replace(ECHO, prefix=body.text(CONTENT), adds_start=adds_start, parses_special=parses_special)
    return _shaped(request, tokens)


def translate_detokenize(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/detokenize`: the ids of tokens to their text."""
    body = checked_body(fields, served_models, Border(frozenset([TOKENS]), silent=SILENT))
    ids = body.get(TOKENS, [])
    if ids and (isinstance(ids, str) or not is_prompt(ids)):
        raise RequestError(f"{TOKENS}: give a list of the ids of tokens", TOKENS)
    return _shaped(
        replace(ECHO, prompt_ids=tuple(ids)),
        lambda answer: {CONTENT: answer.echoed.text if answer.echoed else ""},
    )


def translate_template(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/apply-template`, which is one of a chat, to the prompt that the model would read."""
    chat = {name: value for name, value in fields.items() if name in CHAT_BORDER.used | {"model"} and name != "stream"}
    request = cast("EngineRequest", translate_chat(chat, served_models).request)
    shown = replace(request, request=replace(request.request, only_renders=True))
    return _shaped(shown, lambda answer: {PROMPT: answer.text})


ECHO = FimRequest("", max_tokens=0, max_context_tokens=NO_LIMIT, is_raw=True, adds_start=False, echoes=True)


@dataclass
class ShapedReply(CompletionReply):
    """What is no completion, though the engine answers it as one."""

    shape: Callable[[Answer], JsonObject] = lambda _answer: {}

    def whole(self) -> JsonObject:
        return self.shape(self.answer)


def _shaped(request: FimRequest | EngineRequest, shape: Callable[[Answer], JsonObject]) -> TranslatedRequest:
    return TranslatedRequest(request, ShapedReply("", shape=shape))


def _piece(token: CommittedToken) -> JsonObject:
    """A token with its text, or with its bytes where these are a part of a character."""
    try:
        return {"id": token.token_id, "piece": token.token_bytes.decode()}
    except UnicodeDecodeError:
        return {"id": token.token_id, "piece": list(token.token_bytes)}


def translate_infill(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/infill`: a gap between two texts, whose beginning is the prompt; RequestError for a wrong field."""
    body = checked_body(fields, served_models, INFILL_BORDER)
    limit = body.number("n_predict", int)
    request = FimRequest(
        body.text(PREFIX) + body.text(PROMPT), body.text(SUFFIX), min(MAX_FIM_TOKENS, limit or MAX_FIM_TOKENS),
        max_context_tokens=MAX_CONTEXT_TOKENS, timeout_seconds=TIMEOUT_SECONDS, stop=body.stop(),
    )  # fmt: skip
    return _translated(body, request, served_models)


def _translated(
    body: Body, request: FimRequest, served_models: Sequence[str], top_logprobs: int = 0
) -> TranslatedRequest:
    answer = Answer(keeps_tokens=request.wants_probabilities, notices=body.notices)
    reply = CompletionReply(served_models[0], answer, top_logprobs)
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
