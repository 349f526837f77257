"""Errors of requests and their HTTP status. Each API writes them in its own shape. Knows no network."""

from dataclasses import dataclass

from specchat.errors import ContextError, SpecchatError, UsageError

NOT_IMPLEMENTED = 501
INTERNAL_SERVER_ERROR = 500
REQUEST_TIMEOUT = 408
UNAUTHORIZED = 401
SERVICE_UNAVAILABLE = 503
STATUS_BY_EXIT_CODE = {UsageError.exit_code: 400, ContextError.exit_code: 400, 7: SERVICE_UNAVAILABLE}
ERROR_CODE_BY_EXIT_CODE = {ContextError.exit_code: "context_length_exceeded", 7: "engine_unavailable"}


@dataclass(frozen=True)
class ApiError:
    """An error response. `param` is the wrong field of the request, `code` is for programs."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None


class RequestError(UsageError):
    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.api_error = ApiError(status, message, param, code)


def to_api_error(error: SpecchatError) -> ApiError:
    if isinstance(error, RequestError):
        return error.api_error
    status = STATUS_BY_EXIT_CODE.get(error.exit_code, INTERNAL_SERVER_ERROR)
    return ApiError(status, str(error), code=ERROR_CODE_BY_EXIT_CODE.get(error.exit_code))
