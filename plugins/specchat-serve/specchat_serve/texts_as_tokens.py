"""Texts that stand where ids of tokens do, as clients of llama-server write them: in `logit_bias`, and inside a prompt.

The engine is asked for the tokens of these texts, and their ids are put into the body. `ignore_eos` becomes biases
against the tokens that end a text. Knows no network.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from specchat.chat.events import Event, Failed, PromptTokens
from specchat.errors import error_with_exit_code
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import IGNORE_EOS, LOGIT_BIAS, JsonObject
from specchat_serve.llama_server_api import ECHO, PROMPT

MAX_TEXTS = 256
Ids = Mapping[str, Sequence[int]]  # of the tokens of each text


async def with_token_ids(
    fields: JsonObject, stream_answers: Callable[..., AsyncGenerator[Event]], *, may_ignore_ends: bool
) -> JsonObject:
    """The body with ids of tokens in place of such texts."""
    texts, ignores_ends = texts_in_place_of_ids(fields), may_ignore_ends and fields.get(IGNORE_EOS) is True
    ids, requests = list[list[int]](), [replace(ECHO, prefix=text) for text in texts]
    requests += [replace(ECHO, echoes_ends=True)] if ignores_ends else []
    if not requests:
        return fields
    async with aclosing(stream_answers(*requests)) as events:
        async for event in events:
            if isinstance(event, PromptTokens):
                ids.append([token.token_id for token in event.tokens])
            elif isinstance(event, Failed):
                raise error_with_exit_code(event.message, event.exit_code)
    ends = ids.pop() if ignores_ends else []
    return with_ids(fields, dict(zip(texts, ids, strict=True)), ends)


def texts_in_place_of_ids(fields: JsonObject) -> list[str]:
    """Those of a body, each once; RequestError for too many in a field."""
    biased = [token for token, _ in _biases(fields) if _is_text(token)]
    inside = [part for prompt in _mixed_prompts(fields) for part in prompt if isinstance(part, str)]
    for name, texts in ((LOGIT_BIAS, biased), (PROMPT, inside)):
        if len(set(texts)) > MAX_TEXTS:
            raise RequestError(f"{name}: give at most {MAX_TEXTS} texts, or the ids of their tokens", name)
    return list(dict.fromkeys((*biased, *inside)))


def with_ids(fields: JsonObject, ids: Ids, never: Sequence[int] = ()) -> JsonObject:
    """The body with the ids of the tokens of these texts; all tokens of a text have its bias, `never` the least."""
    changed, biases = dict(fields), [*_biases(fields), *((token, False) for token in never)]
    if biases:
        changed[LOGIT_BIAS] = [[each, bias] for token, bias in biases for each in ids.get(str(token), [token])]
    if list(_mixed_prompts(fields)):
        prompt = fields[PROMPT]
        changed[PROMPT] = _joined(prompt, ids) if _is_mixed(prompt) else [_joined(each, ids) for each in prompt]
    return changed


def _biases(fields: JsonObject) -> Iterator[tuple[Any, Any]]:
    """Tokens and their biases, of an object or of pairs; what is neither is an error elsewhere."""
    given = fields.get(LOGIT_BIAS)
    pairs: Any = given.items() if isinstance(given, dict) else given if isinstance(given, list) else ()
    for pair in pairs:
        match pair:
            case (int() | str() as token, bias):
                yield token, bias
            case _:
                pass


def _is_text(token: int | str) -> bool:
    """Whether it is no id: the keys of an object are ids as texts."""
    return isinstance(token, str) and not token.isdecimal()


def _mixed_prompts(fields: JsonObject) -> Iterator[list[Any]]:
    """Prompts of ids and texts; one of texts alone is several prompts."""
    prompt = fields.get(PROMPT)
    if isinstance(prompt, list):
        listed = cast("list[Any]", prompt)
        yield from [listed] if _is_mixed(listed) else filter(_is_mixed, listed)


def _is_mixed(prompt: Any) -> bool:
    return isinstance(prompt, list) and {type(each) for each in cast("list[Any]", prompt)} == {int, str}


def _joined(prompt: Any, ids: Ids) -> Any:
    if not _is_mixed(prompt):
        return prompt
    return [each for part in prompt for each in (ids[part] if isinstance(part, str) else [part])]
