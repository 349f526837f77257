"""What can go wrong between us and a server, in one line each: what happened, where, and what to do instead."""

from __future__ import annotations

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

from specchat.errors import ModelError

INSTEAD = "--profile chat answers without a server"
LONGEST_QUOTE = 200


def in_one_line(error: Exception, url: str) -> ModelError:
    """The error to tell a person."""
    return ModelError(f"{_what(error, url)}; {INSTEAD}")


def is_dropped(error: Exception) -> bool:
    """Whether the connection was lost, or never made, so that asking again may help."""
    return (isinstance(error, APIConnectionError) or _is_of_transport(error)) and not is_slow(error)


def is_slow(error: Exception) -> bool:
    """Whether nothing came for too long."""
    return isinstance(error, APITimeoutError | TimeoutError) or (
        _is_of_transport(error) and "Timeout" in type(error).__name__
    )


def _is_of_transport(error: Exception) -> bool:
    """Once a stream has begun, the client lets errors of its transport through: httpx, or httpx2 in newer releases."""
    return type(error).__module__.startswith("httpx")


def _what(error: Exception, url: str) -> str:
    if is_slow(error):
        return f"the server at {url} has said nothing for too long"
    if is_dropped(error):
        return f"no server answers at {url}"
    match error:
        case APIStatusError(status_code=401 | 403):
            return f"the server at {url} wants a key; put it into a file and name that in models.key_file"
        case APIStatusError(status_code=404):
            return f"the server at {url} does not know this: {_quoted(error)}"
        case APIStatusError(status_code=429):
            return f"the server at {url} has too much to do: {_quoted(error)}"
        case APIStatusError(status_code=code):
            return f"the server at {url} refused with {code}: {_quoted(error)}"
        case APIError():
            return f"the server at {url} broke off: {_quoted(error)}"
        case _:
            return f"the server at {url} does not speak as OpenAI's does ({type(error).__name__})"


def _quoted(error: APIError) -> str:
    """Its own words, without those that the client puts around them."""
    body = error.body
    while isinstance(body, dict):
        body = body.get("message") or body.get("error") or body.get("detail") or error.message
    line = " ".join(str(body or error.message).split())
    return line if len(line) <= LONGEST_QUOTE else f"{line[:LONGEST_QUOTE]}…"
