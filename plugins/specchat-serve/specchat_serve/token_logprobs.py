"""The logarithms of the probabilities of tokens, in the forms of several APIs. Knows no network."""

import math
from collections.abc import Sequence

from specchat.chat.events import CommittedToken
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import Body, JsonObject

LOGPROBS, TOP_LOGPROBS = "logprobs", "top_logprobs"
MAX_TOP_LOGPROBS = 20  # as many as the engine gives
SMALLEST_LOGPROB = -9999.0  # of a probability that is 0 when rounded, as OpenAI has it


def parse_top_logprobs(body: Body) -> int:
    """How many other tokens stand beside each token, where `logprobs` is true."""
    count = checked_count(body.number(TOP_LOGPROBS, int) or 0, TOP_LOGPROBS)
    if count and not body.get(LOGPROBS):
        raise RequestError(f"{TOP_LOGPROBS}: set logprobs to true, too", TOP_LOGPROBS)
    return count


def checked_count(count: int, name: str) -> int:
    if not 0 <= count <= MAX_TOP_LOGPROBS:
        raise RequestError(f"{name}: give a number from 0 to {MAX_TOP_LOGPROBS}", name)
    return count


def token_objects(tokens: Sequence[CommittedToken], top_count: int) -> list[JsonObject]:
    """As chat completions and Ollama have them."""
    return [
        {
            **_token_object(token.token_bytes, token.probability or 0.0),
            "id": token.token_id,
            TOP_LOGPROBS: [
                {**_token_object(each.token_bytes, each.probability), "id": each.token_id}
                for each in token.likeliest[:top_count]
            ],
        }
        for token in tokens
    ]


def token_shares(tokens: Sequence[CommittedToken], top_count: int) -> list[JsonObject]:
    """As llama-server has them after sampling: probabilities, and no token that has none."""
    return [
        {
            **_share_object(token.token_id, token.token_bytes, token.probability or 0.0),
            "top_probs": [
                _share_object(each.token_id, each.token_bytes, each.probability)
                for each in token.likeliest[:top_count]
                if each.probability
            ],
        }
        for token in tokens
    ]


def _share_object(token_id: int, token_bytes: bytes, probability: float) -> JsonObject:
    text = token_bytes.decode(errors="replace")
    return {"id": token_id, "token": text, "bytes": list(token_bytes), "prob": probability}


def completion_logprobs(tokens: Sequence[CommittedToken], top_count: int, offset: int) -> tuple[JsonObject, int]:
    """As completions have them: lists, and objects by the text of a token, where the first token of a prompt has null.

    `offset`: so many characters of the text stand before these tokens; so many with them is what is returned, too.
    """
    lists: dict[str, list[object]] = {"tokens": [], "token_logprobs": [], TOP_LOGPROBS: [], "text_offset": []}
    for token in tokens:
        text = _token_name(token.token_bytes)
        own = None if token.probability is None else _logprob(token.probability)
        known = {_token_name(each.token_bytes): _logprob(each.probability) for each in token.likeliest[:top_count]}
        for name, value in zip(lists, (text, own, None if own is None else {**known, text: own}, offset), strict=True):
            lists[name].append(value)
        offset += sum(byte & 0xC0 != 0x80 for byte in token.token_bytes)  # characters that begin in it
    return dict(lists), offset


def _token_object(token_bytes: bytes, probability: float) -> JsonObject:
    return {
        "token": token_bytes.decode(errors="replace"), "logprob": _logprob(probability), "bytes": list(token_bytes)
    }  # fmt: skip


def _logprob(probability: float) -> float:
    return math.log(probability) if probability else SMALLEST_LOGPROB


def _token_name(token_bytes: bytes) -> str:
    """The text of a token; of a part of a character its bytes, as OpenAI writes them, so that two are not one."""
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)
