"""What goes wrong, as a client of this API is told of it: a status, and an object with a message. Knows no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specchat.errors import ContextError, SpecchatError, UsageError

INTERNAL_SERVER_ERROR = 500
SERVICE_UNAVAILABLE = 503
STATUS_BY_EXIT_CODE = {
    UsageError.exit_code: 400,
    ContextError.exit_code: 400,
    7: SERVICE_UNAVAILABLE,
}  # by the exit code of a command
ERROR_CODE_BY_EXIT_CODE = {ContextError.exit_code: "context_length_exceeded", 7: "engine_unavailable"}


@dataclass(frozen=True)
class ApiError:
    """Why there is no answer. `param` is the field of the request that is to blame, `code` a word for programs."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        """The object that OpenAI's clients look for."""
        kind = "invalid_request_error" if self.status < INTERNAL_SERVER_ERROR else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class RequestError(UsageError):
    """A request that is not served as it stands."""

    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.api_error = ApiError(status, message, param, code)


def to_api_error(error: SpecchatError) -> ApiError:
    """What one of our errors is in this API."""
    if isinstance(error, RequestError):
        return error.api_error
    return ApiError(
        STATUS_BY_EXIT_CODE.get(error.exit_code, INTERNAL_SERVER_ERROR),
        str(error),
        code=ERROR_CODE_BY_EXIT_CODE.get(error.exit_code),
    )
