"""The objects that the endpoints of OpenAI's API share: errors, models, the usage. Knows no network."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from specchat import __version__
from specchat_serve.answer import Answer
from specchat_serve.api_errors import INTERNAL_SERVER_ERROR, UNAUTHORIZED, ApiError
from specchat_serve.json_fields import JsonObject

OWNED_BY = "specchat"
FINGERPRINT = f"specchat-{__version__}"
AUTHENTICATION_ERROR = "authentication_error"  # as llama-server and Anthropic call a wrong token
DONE_EVENT = b"data: [DONE]\n\n"


def error_body(api_error: ApiError) -> dict[str, Any]:
    default = "invalid_request_error" if api_error.status < INTERNAL_SERVER_ERROR else "server_error"
    error_type = AUTHENTICATION_ERROR if api_error.status == UNAUTHORIZED else default
    return {
        "error": {
            "message": api_error.message, "type": error_type, "param": api_error.param, "code": api_error.code,
        }
    }  # fmt: skip


def models_body(models: Sequence[tuple[str, int]], started_at: datetime) -> JsonObject:
    """The body of `/v1/models`: names and context windows, of which 0 is unknown."""
    return {"object": "list", "data": [model_body(model, started_at, window) for model, window in models]}


def model_body(model: str, started_at: datetime, context_window: int) -> JsonObject:
    """One model; `max_model_len` as in vLLM."""
    limits = {"max_model_len": context_window} if context_window else {}
    return {"id": model, "object": "model", "created": int(started_at.timestamp()), "owned_by": OWNED_BY, **limits}


def completion_usage(answers: Sequence[Answer], answers_per_prompt: int = 1) -> JsonObject:
    """The usage of chat completions and completions. Each prompt counts once, and all answers do."""
    totals = [answer.totals for answer in answers]
    first = totals[::answers_per_prompt]
    prompt, completion = sum(each.prompt_tokens for each in first), sum(each.completion_tokens for each in totals)
    stats = [{**answer.speculation_stats(), "cached_tokens": answer.totals.cached_tokens} for answer in answers]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in first)},
        "completion_tokens_details": {"reasoning_tokens": sum(each.thinking_tokens for each in totals)},
        "specchat": stats[0] if len(stats) == 1 else {"notices": stats[0]["notices"], "choices": stats},
    }
