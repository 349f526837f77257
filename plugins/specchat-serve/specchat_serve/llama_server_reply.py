"""Answers of the own API of llama-server, one or several, whole or as a stream. Knows no network."""

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.events import CommittedToken, TextDelta
from specchat_serve.answer import Answer, Delta
from specchat_serve.choices import AnswersReply
from specchat_serve.json_fields import JsonObject
from specchat_serve.llama_server_objects import TIMINGS, timings
from specchat_serve.replies import sse_event
from specchat_serve.token_logprobs import token_objects, token_shares


@dataclass(frozen=True)
class CompletionOptions:
    """What a client wants to read of an answer."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the request, which an answer repeats
    prompts: Sequence[Any] = ()  # as they were given, one for each answer
    top_logprobs: int = 0  # how many likely tokens stand beside each token
    is_after_sampling: bool = False  # their probabilities, and not the logarithms of those of the model
    returns_tokens: bool = False
    tells_timings: bool = False  # with every piece
    response_fields: Sequence[str] = ()  # all that an answer has, as "timings/prompt_n"; empty: everything


@dataclass
class CompletionReply(AnswersReply):
    options: CompletionOptions = CompletionOptions()

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        """One event, or one for each token where its probability is wanted."""
        if not isinstance(delta, TextDelta):
            return b""
        tokens = self.answer.new_tokens() if self.answer.keeps_tokens else []
        pieces = _one_by_one(delta.text, tokens) if self.options.top_logprobs else [(delta.text, tokens)]
        return b"".join(sse_event({**self._piece(text, some), "stop": False}) for text, some in pieces)

    def empty_chunk(self) -> JsonObject:
        return {**self._piece("", []), "stop": False}

    def end(self) -> bytes:
        return b"".join(sse_event(self._last(index, "")) for index in range(len(self.answers)))

    def whole(self) -> JsonObject | list[JsonObject]:
        """The answer, or a list of several."""
        each = [self._last(index, answer.text) for index, answer in enumerate(self.answers)]
        return each[0] if len(each) == 1 else each

    def _last(self, index: int, content: str) -> JsonObject:
        answer, options = self.answers[index], self.options
        totals, tokens = answer.totals, answer.new_tokens() if answer.keeps_tokens else []
        body = {
            **self._piece(content, tokens), "index": index, "tokens": [], "stop": True, "model": self.model,
            "prompt": options.prompts[index] if options.prompts else "", "generation_settings": options.settings,
            "has_new_line": "\n" in answer.text, "tokens_predicted": totals.completion_tokens,
            "tokens_evaluated": totals.prompt_tokens, "tokens_cached": totals.cached_tokens, "truncated": False,
            "stop_type": "limit" if answer.is_truncated else "eos" if answer.stop_text is None else "word",
            "stopping_word": answer.stop_text or "", "timings": timings(answer), "specchat": answer.speculation_stats(),
        }  # fmt: skip
        if options.returns_tokens:
            body["tokens"] = [token.token_id for token in tokens]
        return {path: value for path in options.response_fields for value in _values(body, path)} or body

    def _piece(self, content: str, tokens: Sequence[CommittedToken]) -> JsonObject:
        return {
            "index": self.index, "content": content, "tokens": [token.token_id for token in tokens], "id_slot": 0,
            **self._probabilities(tokens), **({TIMINGS: timings(self.answer)} if self.options.tells_timings else {}),
        }  # fmt: skip

    def _probabilities(self, tokens: Sequence[CommittedToken]) -> JsonObject:
        top = self.options.top_logprobs
        if not top:
            return {}
        objects = token_shares(tokens, top) if self.options.is_after_sampling else token_objects(tokens, top)
        return {"completion_probabilities": objects}


def _one_by_one(text: str, tokens: Sequence[CommittedToken]) -> Iterator[tuple[str, Sequence[CommittedToken]]]:
    """Each token with its part of the text: a character stands with the token that completes it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts = [decoder.decode(token.token_bytes) for token in tokens]
    if "".join(parts) != text:  # a part of it came before, or comes later
        parts = [text, *("" for _ in tokens[1:])]
    if not tokens:
        yield text, tokens
    for part, token in zip(parts, tokens, strict=False):
        yield part, [token]


def _values(body: JsonObject, path: str) -> Iterator[Any]:
    """The value at a path such as "timings/prompt_n", if there is one."""
    value: Any = body
    for name in path.split("/"):
        if not isinstance(value, dict) or name not in value:
            return
        value = value[name]
    yield value


@dataclass
class ShapedReply(CompletionReply):
    """What is no completion, though the engine answers it as one."""

    shape: Callable[[Answer], JsonObject] = lambda _answer: {}

    def whole(self) -> JsonObject:
        return self.shape(self.answer)
