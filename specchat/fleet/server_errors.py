"""What can go wrong between us and a server, in one line each: what happened, where, and what to do instead."""

from __future__ import annotations

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

from specchat.errors import ModelError

FALLBACK_HINT = "--profile chat answers without a server"
MAX_QUOTE_CHARS = 200


def to_model_error(error: Exception, url: str) -> ModelError:
    """The error to tell a person."""
    return ModelError(f"{_describe(error, url)}; {FALLBACK_HINT}")


def is_connection_error(error: Exception) -> bool:
    """Whether the connection was lost, or never made, so that asking again may help."""
    return (isinstance(error, APIConnectionError) or _is_transport_error(error)) and not is_timeout(error)


def is_timeout(error: Exception) -> bool:
    """Whether nothing came for too long."""
    return isinstance(error, APITimeoutError | TimeoutError) or (
        _is_transport_error(error) and "Timeout" in type(error).__name__
    )


def _is_transport_error(error: Exception) -> bool:
    """Once a stream has begun, the client lets errors of its transport through: httpx, or httpx2 in newer releases."""
    return type(error).__module__.startswith("httpx")


def _describe(error: Exception, url: str) -> str:
    if is_timeout(error):
        return f"the server at {url} has said nothing for too long"
    if is_connection_error(error):
        return f"no server answers at {url}"
    match error:
        case APIStatusError(status_code=401 | 403):
            return f"the server at {url} wants a key; put it into a file and name that in models.key_file"
        case APIStatusError(status_code=404):
            return f"the server at {url} does not know this: {_server_message(error)}"
        case APIStatusError(status_code=429):
            return f"the server at {url} has too much to do: {_server_message(error)}"
        case APIStatusError(status_code=code):
            return f"the server at {url} refused with {code}: {_server_message(error)}"
        case APIError():
            return f"the server at {url} broke off: {_server_message(error)}"
        case _:
            return f"the server at {url} does not speak as OpenAI's does ({type(error).__name__})"


def _server_message(error: APIError) -> str:
    """Its own words, without those that the client puts around them."""
    body = error.body
    while isinstance(body, dict):
        body = body.get("message") or body.get("error") or body.get("detail") or error.message
    line = " ".join(str(body or error.message).split())
    return line if len(line) <= MAX_QUOTE_CHARS else f"{line[:MAX_QUOTE_CHARS]}…"
