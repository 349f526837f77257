"""Makes pygls answer every request, without tracebacks or paths in the answers.

pygls 2.1 does not answer a request with invalid params, puts stack traces into the data of errors, shows its own errors
in message boxes, and serves requests before `initialize`. The overridden methods are internal ones, so the version of
pygls is pinned in pyproject.toml.
"""

import logging
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol

from specchat.host.protocol import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

log = logging.getLogger(__name__)

NOT_INITIALIZED = -32002
MAX_ERROR_CHARS = 200


@dataclass(frozen=True)
class InvalidMessage:
    id: int | str | None
    is_request: bool
    error: JsonRpcException


class GuardedProtocol(LanguageServerProtocol):
    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            id = data.get("id")
            return InvalidMessage(id if isinstance(id, int | str) else None, "method" in data and "id" in data, error)

    def handle_message(self, message: Any) -> None:
        match message:
            case InvalidMessage(id=id, is_request=True, error=error):
                self.send_error(id, error.code, str(error))
            case InvalidMessage():
                log.warning("invalid message: %s", message.error)
            case object(jsonrpc="2.0"):
                self._dispatch(message)
            case _:
                self.send_error(None, INVALID_REQUEST, "a message must be one JSON-RPC 2.0 object")

    def send_error(self, id: int | str | None, code: int, text: str) -> None:
        """Answer with an error of one line."""
        line = (text.strip().splitlines() or ["failed"])[0][:MAX_ERROR_CHARS]
        self._send_data({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": line}})

    def on_read_error(self, error: Exception, _source: object) -> None:
        """Answer bytes that are not a message, and continue with the next one."""
        log.warning("unreadable: %s", type(error).__name__)
        self.send_error(None, PARSE_ERROR, "this message is not JSON")

    def _dispatch(self, message: Any) -> None:
        method, is_request = getattr(message, "method", None), hasattr(message, "id")
        is_initialized = self._workspace is not None
        if is_request and not isinstance(message.id, int | str):
            self.send_error(None, INVALID_REQUEST, "an id must be a string or a whole number")
        elif method is None or method == types.EXIT:
            super().handle_message(message)
        elif self._shutdown or (method == types.INITIALIZE and is_initialized):
            if is_request:
                self.send_error(message.id, INVALID_REQUEST, "the server is initialized already, or shut down")
        elif method != types.INITIALIZE and not is_initialized:
            if is_request:
                self.send_error(message.id, NOT_INITIALIZED, "the first request is 'initialize'")
        else:
            super().handle_message(message)

    def _send_response(
        self, msg_id: int | str, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        if error is None:
            super()._send_response(msg_id, result)
        elif error.code == INTERNAL_ERROR:
            self.send_error(msg_id, error.code, "this failed; see the log of 'specchat lsp'")
        else:
            self.send_error(msg_id, error.code, error.message)
