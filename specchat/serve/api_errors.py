"""What goes wrong, as a client of this API is told of it: a status, and an object with a message. Knows no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specchat.errors import ContextError, SpecchatError, UsageError

SERVERS_FAULT = 500
UNAVAILABLE = 503
STATUS = {UsageError.exit_code: 400, ContextError.exit_code: 400, 7: UNAVAILABLE}  # by the exit code of a command
CODES = {ContextError.exit_code: "context_length_exceeded", 7: "engine_unavailable"}


@dataclass(frozen=True)
class Fault:
    """Why there is no answer. `param` is the field of the request that is to blame, `code` a word for programs."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        """The object that OpenAI's clients look for."""
        kind = "invalid_request_error" if self.status < SERVERS_FAULT else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class RefusedError(UsageError):
    """A request that is not served as it stands."""

    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.fault = Fault(status, message, param, code)


def fault_of(error: SpecchatError) -> Fault:
    """What one of our errors is in this API."""
    if isinstance(error, RefusedError):
        return error.fault
    return Fault(STATUS.get(error.exit_code, SERVERS_FAULT), str(error), code=CODES.get(error.exit_code))
