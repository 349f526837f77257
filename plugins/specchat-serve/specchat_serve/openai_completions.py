"""OpenAI's `/v1/completions`: a prompt, and a suffix for a gap, to a completion. Knows no network and no model.

A prompt is the whole prompt: its template is the client's, and control tokens in it are control tokens. A gap between
prompt and suffix is filled as in editors, greedily, with the control tokens of the model.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, cast

from specchat.chat.events import TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import AnswerFormat
from specchat.profile.keys import Sampling
from specchat.profile.validation import InvalidValueError
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import RequestError
from specchat_serve.choices import ChoicesReply, check_answer_count, parse_choice_count, with_other_seeds
from specchat_serve.json_fields import (
    FORMAT_FIELDS,
    IGNORE_EOS,
    LOGIT_BIAS,
    SAMPLING_FIELDS,
    STRUCTURED_OUTPUTS,
    Body,
    Border,
    JsonObject,
    Refusals,
    checked_body,
)
from specchat_serve.llama_server_objects import RETURN_PROGRESS, TIMINGS_PER_TOKEN
from specchat_serve.openai_chat import NO_GRAMMAR, SILENT_FIELDS, parse_response_format
from specchat_serve.replies import TranslatedRequest, sse_event, translated
from specchat_serve.token_logprobs import (
    LOGPROBS,
    TOP_LOGPROBS,
    checked_count,
    completion_logprobs,
    parse_top_logprobs,
)

Prompt = str | tuple[int, ...]  # a text, or the ids of its tokens

DEFAULT_MAX_TOKENS = 16  # as OpenAI's
MAX_CONTEXT_TOKENS = 2**20  # more than any context window, which is the limit then
TIMEOUT_SECONDS = 600.0
IS_GREEDY = "a gap is filled greedily, as in editors; leave it out"
GREEDY: Refusals = {
    name: ((neutral,), IS_GREEDY)
    for name, neutral in {
        "temperature": 0, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "repeat_penalty": 1,
    }.items()
}  # fmt: skip
BORDER = Border(
    used=frozenset([
        "prompt", "suffix", "max_tokens", "stop", "stream", "stream_options", "temperature", "seed", *SAMPLING_FIELDS,
        "n", "best_of", "echo", LOGPROBS, TOP_LOGPROBS, LOGIT_BIAS, IGNORE_EOS, "response_format", *FORMAT_FIELDS,
        STRUCTURED_OUTPUTS, RETURN_PROGRESS, TIMINGS_PER_TOKEN,
    ]),
    refused={"grammar": ((), NO_GRAMMAR)},
    silent=SILENT_FIELDS,
)  # fmt: skip


@dataclass
class CompletionReply(ChoicesReply):
    id_prefix: ClassVar[str] = "cmpl"
    object_type: ClassVar[str] = "text_completion"
    chunk_type: ClassVar[str] = "text_completion"
    _sent_characters: Counter[int] = field(default_factory=Counter[int])  # of each text, with their probabilities

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        if not isinstance(delta, TextDelta):
            return b""
        return sse_event(self.with_timings(self.chunk(self._choice(self.index, delta.text))))

    def empty_chunk(self) -> JsonObject:
        return self.chunk({"index": self.index, "text": "", "logprobs": None, "finish_reason": None})

    def last_chunks(self, index: int) -> Iterator[JsonObject]:
        yield self.chunk(self._choice(index, "", self.answers[index].finish_reason))

    def whole_choice(self, index: int) -> JsonObject:
        answer = self.answers[index]
        echoed = answer.echoed.text if answer.echoed else ""
        return self._choice(index, echoed + answer.text, answer.finish_reason)

    def _choice(self, index: int, text: str, reason: str | None = None) -> JsonObject:
        answer, logprobs = self.answers[index], None
        if answer.keeps_tokens:
            sent = self._sent_characters
            logprobs, sent[index] = completion_logprobs(answer.new_tokens(), self.top_logprobs, sent[index])
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def translate_completion(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/v1/completions`; RequestError for a wrong or unsupported field."""
    body = checked_body(fields, served_models, BORDER)
    max_tokens, count, prompts = body.number("max_tokens", int), parse_choice_count(body), _parse_prompts(body)
    check_answer_count(prompts, count)
    limit, top_logprobs = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens, _parse_logprobs(body)
    keeps_tokens = top_logprobs is not None
    form = parse_response_format(body.object("response_format")) or body.form_of_other_servers()
    requests = [
        replace(
            completion_request(prompt, limit, body, answer_format=form, echoes=body.flag("echo")),
            wants_probabilities=keeps_tokens,
        )
        for prompt in prompts
    ]
    asked = list(chain.from_iterable(with_other_seeds(request, count) for request in requests))
    includes_usage = body.object("stream_options").flag("include_usage")
    answers = [Answer(keeps_tokens=keeps_tokens, notices=body.notices) for _ in asked]
    reply = CompletionReply(
        served_models[0], answers, includes_usage, top_logprobs or 0, count, body.flag(TIMINGS_PER_TOKEN)
    )
    return translated(body, reply, asked)


def _parse_logprobs(body: Body) -> int | None:
    """How many likely tokens stand beside each token: the number of OpenAI, or true with `top_logprobs`."""
    top_count = parse_top_logprobs(body)
    if isinstance(body.get(LOGPROBS), bool):
        return top_count if body.flag(LOGPROBS) else None
    count = body.number(LOGPROBS, int)
    return None if count is None else checked_count(count, LOGPROBS)


def completion_request(
    prompt: Prompt,
    max_tokens: int,
    body: Body,
    options: Body | None = None,
    names: Mapping[str, str] = SAMPLING_FIELDS,
    *,
    answer_format: AnswerFormat | None = None,
    echoes: bool = False,
) -> FimRequest:
    """A completion with all of the context window and without the time limit of editors.

    `options` is the object with the sampling and the stop texts, by default the body itself.
    """
    chosen, suffix = body if options is None else options, body.text("suffix")
    if suffix and (echoes or not isinstance(prompt, str)):
        raise RequestError("suffix: a gap is between two texts, and its prompt is not repeated", "suffix")
    if suffix and answer_format:
        raise RequestError("suffix: what fills a gap has no form; leave one of them out", "suffix")
    if suffix:
        chosen.check(Border(frozenset(chosen) - GREEDY.keys(), GREEDY))
    given = chosen.sampling_numbers({"temperature": "temperature", **names})
    try:
        sampling = Sampling(**given, seed=chosen.number("seed", int))
    except InvalidValueError as error:
        raise RequestError(str(error)) from None
    return FimRequest(
        prompt if isinstance(prompt, str) else "", suffix, max_tokens, max_context_tokens=MAX_CONTEXT_TOKENS,
        timeout_seconds=TIMEOUT_SECONDS, stop=chosen.stop(), is_raw=not suffix,
        sampling=Sampling() if suffix else sampling, logit_bias=chosen.logit_bias(),
        prompt_ids=() if isinstance(prompt, str) else prompt, echoes=echoes, answer_format=answer_format,
    )  # fmt: skip


def _parse_prompts(body: Body) -> list[Prompt]:
    """A text, the ids of its tokens, or a list of either."""
    prompt = body.get("prompt")
    prompts = cast("list[Any]", prompt if isinstance(prompt, list) and not is_prompt(prompt) else [prompt])
    if not all(map(is_prompt, prompts)):
        raise RequestError("prompt: give a text that is not empty, the ids of tokens, or a list of them", "prompt")
    return [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in prompts]


def is_prompt(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(type(each) is int for each in cast("list[Any]", value))
    return isinstance(value, str) and bool(value)
