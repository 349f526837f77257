"""The own API of llama-server, for plugins of editors and evaluations: completions, gaps, tokens, templates, facts.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md. Knows no network and no model.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from specchat import __version__
from specchat.chat.events import CommittedToken
from specchat.chat.fim_request import MAX_FIM_TOKENS, FimRequest
from specchat.chat.request import TokenBias
from specchat.profile.keys import Sampling
from specchat_serve.answer import Answer
from specchat_serve.api_errors import RequestError
from specchat_serve.choices import check_answer_count, parse_choice_count, with_other_seeds
from specchat_serve.engine_request import EngineRequest
from specchat_serve.json_fields import IGNORE_EOS, LEAST_BIAS, LOGIT_BIAS, Body, Border, JsonObject, checked_body
from specchat_serve.llama_server_objects import RETURN_PROGRESS, TIMINGS_PER_TOKEN
from specchat_serve.llama_server_reply import CompletionOptions, CompletionReply, ShapedReply
from specchat_serve.ollama_api import SAMPLING_OPTIONS
from specchat_serve.openai_chat import BORDER as CHAT_BORDER
from specchat_serve.openai_chat import NO_GRAMMAR, SILENT_FIELDS, rendered, translate_chat
from specchat_serve.openai_completions import (
    MAX_CONTEXT_TOKENS,
    TIMEOUT_SECONDS,
    Prompt,
    completion_request,
    is_prompt,
)
from specchat_serve.replies import TranslatedRequest, translated
from specchat_serve.token_logprobs import checked_count

SCHEMA_FIELD = "json_schema"
PROMPT, PREFIX, SUFFIX, EXTRA = "prompt", "input_prefix", "input_suffix", "input_extra"
CONTENT, TOKENS, N_PROBS, AFTER_SAMPLING = "content", "tokens", "n_probs", "post_sampling_probs"
RETURN_TOKENS, RESPONSE_FIELDS, COUNTS = "return_tokens", "response_fields", ("n_cmpl", "n")
NO_LIMIT = 2**20  # more than any context window, which is the limit then
PLAIN = Sampling(temperature=1.0)  # from the probabilities of the model
SAMPLERS_THAT_ARE_OFF = {
    "adaptive_target": -1.0, "adaptive_decay": 0.0, "xtc_probability": 0.0, "typical_p": 1.0, "mirostat": 0,
    "dry_multiplier": 0.0, "dynatemp_range": 0.0,
}  # fmt: skip
NO_FORM = "what fills a gap has no form; use /completion"
SHARED = frozenset([
    PROMPT, "n_predict", "stream", "stop", "seed", "temperature", *SAMPLING_OPTIONS, RETURN_PROGRESS, RETURN_TOKENS,
    TIMINGS_PER_TOKEN, RESPONSE_FIELDS,
])  # fmt: skip
SILENT = SILENT_FIELDS | {"samplers", "t_max_prompt_ms", "t_max_predict_ms", "n_keep", "n_indent", "lora"}
REFUSED = {"grammar": ((), NO_GRAMMAR), "image_data": ((), "the model reads text only")}
COMPLETION_FIELDS = {N_PROBS, AFTER_SAMPLING, LOGIT_BIAS, IGNORE_EOS, SCHEMA_FIELD, *COUNTS}
COMPLETION_BORDER = Border(SHARED | COMPLETION_FIELDS, REFUSED, silent=SILENT)
INFILL_BORDER = Border(SHARED | {PREFIX, SUFFIX, EXTRA}, {**REFUSED, SCHEMA_FIELD: ((), NO_FORM)}, silent=SILENT)


class PromptObject:
    """The keys of a prompt that is an object."""

    TEXT, MEDIA = "prompt_string", "multimodal_data"


def translate_llama_completion(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/completion`; RequestError for a wrong or refused field."""
    body = checked_body(fields, served_models, COMPLETION_BORDER)
    count = parse_choice_count(body, next((name for name in COUNTS if name in body), COUNTS[-1]))
    prompts = _parse_prompts(body)
    check_answer_count(prompts, count)
    limit = body.number("n_predict", int)
    most, form = NO_LIMIT if limit is None else limit, body.form_of_other_servers()
    requests = [
        completion_request(prompt, most, body, names=SAMPLING_OPTIONS, answer_format=form) for prompt in prompts
    ]
    return _translated(body, requests, served_models, count)


def _parse_prompts(body: Body) -> list[Prompt]:
    """A text, the ids of its tokens, an object with a text, or a list of these."""
    prompt = body.get(PROMPT)
    prompts = cast("list[Any]", prompt if isinstance(prompt, list) and not is_prompt(prompt) else [prompt])
    return [_parse_prompt(each) for each in prompts]


def _parse_prompt(prompt: Any) -> Prompt:
    match prompt:
        case {PromptObject.TEXT: str(text)} if text and not prompt.get(PromptObject.MEDIA):
            return text
        case {PromptObject.TEXT: _, PromptObject.MEDIA: _}:
            raise RequestError(f"{PROMPT}: the model reads text only", PROMPT, code="unsupported_content")
        case str() | list() if is_prompt(prompt):
            return prompt if isinstance(prompt, str) else tuple(cast("list[int]", prompt))
        case _:
            raise RequestError(f"{PROMPT}: give a text that is not empty, or the ids of tokens", PROMPT)


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
    return _shaped(rendered(request), lambda answer: {PROMPT: answer.text})


ECHO = FimRequest("", max_tokens=0, max_context_tokens=NO_LIMIT, is_raw=True, adds_start=False, echoes=True)


def _shaped(request: FimRequest | EngineRequest, shape: Callable[[Answer], JsonObject]) -> TranslatedRequest:
    return TranslatedRequest(request, ShapedReply("", [Answer()], shape=shape))


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
        _parse_extra(body) + body.text(PREFIX) + body.text(PROMPT), body.text(SUFFIX),
        min(MAX_FIM_TOKENS, limit or MAX_FIM_TOKENS),
        max_context_tokens=MAX_CONTEXT_TOKENS, timeout_seconds=TIMEOUT_SECONDS, stop=body.stop(),
    )  # fmt: skip
    return _translated(body, [request], served_models)


def _parse_extra(body: Body) -> str:
    """What stands before the text around a gap: pieces of other files, the nearest last."""
    if (extra := body.get(EXTRA)) is None:
        return ""
    if not isinstance(extra, list):
        raise RequestError(f"{EXTRA}: give a list of objects with a text", EXTRA)
    return "".join(_extra_text(each, at) for at, each in enumerate(cast("list[Any]", extra)))


def _extra_text(extra: Any, at: int) -> str:
    match extra:
        case {"text": str(text)} if isinstance(name := extra.get("filename", ""), str):
            return f"{name}\n{text}\n\n" if name else f"{text}\n\n"
        case _:
            raise RequestError(f"{EXTRA}[{at}]: give an object with a text, and a filename, which is one", EXTRA)


def _translated(
    body: Body, requests: Sequence[FimRequest], served_models: Sequence[str], count: int = 1
) -> TranslatedRequest:
    """The answers to these requests, each so many times."""
    top, first = checked_count(body.number(N_PROBS, int) or 0, N_PROBS), requests[0]
    is_plain = first.sampling == replace(PLAIN, seed=first.sampling.seed) and not first.logit_bias
    if (wants_shares := body.flag(AFTER_SAMPLING)) and not is_plain:
        body.leave_out(AFTER_SAMPLING, "only with a temperature of 1 and nothing else are they those of the model")
    options = CompletionOptions(
        _settings(first, body, top), [each.prompt_ids or each.prefix for each in requests for _ in range(count)], top,
        wants_shares and is_plain, body.flag(RETURN_TOKENS), body.flag(TIMINGS_PER_TOKEN), _parse_response_fields(body),
    )  # fmt: skip
    asked = [replace(each, wants_probabilities=top > 0) for each in requests]
    each_seed = [each for request in asked for each in with_other_seeds(request, count)]
    answers = [Answer(stop=first.stop, keeps_tokens=True, notices=body.notices) for _ in each_seed]
    return translated(body, CompletionReply(served_models[0], answers, options), each_seed)


def _parse_response_fields(body: Body) -> Sequence[str]:
    names = body.get(RESPONSE_FIELDS, [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in cast("list[Any]", names)):
        raise RequestError(f"{RESPONSE_FIELDS}: give a list of names", RESPONSE_FIELDS)
    return cast("list[str]", names)


def _settings(request: FimRequest, body: Body, top: int) -> JsonObject:
    """The settings of a completion by the names of llama-server; those that this server does not have are off."""
    sampling = asdict(request.sampling)
    return {
        "n_predict": -1 if request.max_tokens == NO_LIMIT else request.max_tokens,
        "seed": -1 if request.sampling.seed is None else request.sampling.seed,
        "temperature": request.sampling.temperature,
        **{name: sampling[key] for name, key in SAMPLING_OPTIONS.items()},
        "stop": list(request.stop), "stream": body.flag("stream"), N_PROBS: top,
        IGNORE_EOS: body.flag(IGNORE_EOS), LOGIT_BIAS: [_bias_object(each) for each in request.logit_bias],
        **SAMPLERS_THAT_ARE_OFF,
    }  # fmt: skip


def _bias_object(bias: TokenBias) -> JsonObject:
    """As llama-server writes it: null is "never"."""
    return {"token": bias.token_id, "bias": None if bias.bias == LEAST_BIAS else bias.bias}


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
