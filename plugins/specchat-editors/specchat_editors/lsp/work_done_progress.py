"""The editor's progress bar, if it has one. An editor that does not answer is not waited for."""

import asyncio
import secrets
from threading import Event as Flag

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

CREATE_TIMEOUT_SECONDS = 1.0


class WorkDoneProgress:
    """One progress bar; without a token all methods do nothing."""

    def __init__(self, server: LanguageServer, token: str | None) -> None:
        self._server, self._token = server, token

    @property
    def is_shown(self) -> bool:
        return self._token is not None

    def report(self, fraction: float | None, message: str = "") -> None:
        percentage = None if fraction is None else int(100 * fraction)
        if self._token is not None:
            report = types.WorkDoneProgressReport(message=message or None, percentage=percentage)
            self._server.work_done_progress.report(self._token, report)

    def end(self, message: str = "") -> None:
        if self._token is not None:
            self._server.work_done_progress.end(self._token, types.WorkDoneProgressEnd(message=message or None))
            self._server.work_done_progress.tokens.pop(self._token, None)
            self._token = None


async def begin_progress(server: LanguageServer, title: str, cancelled: Flag | None = None) -> WorkDoneProgress:
    """Start a progress bar; `cancelled` is set when the user cancels it."""
    token = await _create_token(server)
    bar = WorkDoneProgress(server, token)
    if token is not None:
        value = types.WorkDoneProgressBegin(title, cancellable=cancelled is not None, percentage=0)
        server.work_done_progress.begin(token, value)
        if cancelled is not None:
            cancellation = server.work_done_progress.tokens[token]
            cancellation.add_done_callback(lambda _future: cancelled.set())
    return bar


async def _create_token(server: LanguageServer) -> str | None:
    window = server.client_capabilities.window
    if window is None or not window.work_done_progress:
        return None
    token = f"specchat-{secrets.token_hex(4)}"
    try:
        async with asyncio.timeout(CREATE_TIMEOUT_SECONDS):
            await server.work_done_progress.create_async(token)
    except (TimeoutError, JsonRpcException):
        return None
    return token
