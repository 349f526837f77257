"""The errors of a server, as one line each: what happened, where, and what to do instead."""

from __future__ import annotations

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

from specchat.errors import ModelError

FALLBACK_HINT = "--profile chat works without a server"
MAX_QUOTE_CHARS = 200


def to_model_error(error: Exception, url: str) -> ModelError:
    return ModelError(f"{_describe(error, url)}; {FALLBACK_HINT}")


def is_connection_error(error: Exception) -> bool:
    """Whether the connection failed or broke, so that a retry can help."""
    return (isinstance(error, APIConnectionError) or _is_transport_error(error)) and not is_timeout(error)


def is_timeout(error: Exception) -> bool:
    """Whether the server sent nothing for too long."""
    return isinstance(error, APITimeoutError | TimeoutError) or (
        _is_transport_error(error) and "Timeout" in type(error).__name__
    )


def _is_transport_error(error: Exception) -> bool:
    """During a stream, OpenAI's client does not wrap errors of its transport: httpx, or httpx2 in newer releases."""
    return type(error).__module__.startswith("httpx")


def _describe(error: Exception, url: str) -> str:
    if is_timeout(error):
        return f"the server at {url} did not respond in time"
    if is_connection_error(error):
        return f"no server answers at {url}"
    match error:
        case APIStatusError(status_code=401 | 403):
            return f"the server at {url} needs an API key; write it to a file, and set models.api_key_file"
        case APIStatusError(status_code=404):
            return f"the server at {url} does not have this: {_server_message(error)}"
        case APIStatusError(status_code=429):
            return f"the server at {url} is overloaded: {_server_message(error)}"
        case APIStatusError(status_code=code):
            return f"the server at {url} refused with {code}: {_server_message(error)}"
        case APIError():
            return f"the server at {url} failed: {_server_message(error)}"
        case _:
            return f"the server at {url} does not follow OpenAI's API ({type(error).__name__})"


def _server_message(error: APIError) -> str:
    body = error.body
    while isinstance(body, dict):
        body = body.get("message") or body.get("error") or body.get("detail") or error.message
    line = " ".join(str(body or error.message).split())
    return line if len(line) <= MAX_QUOTE_CHARS else f"{line[:MAX_QUOTE_CHARS]}…"
