"""Requests and updates to the editor, from the thread of a session.

Every call waits until the event loop has done it. This keeps updates in order, and a slow editor slows down only its
own session. After the end of a turn no more updates are sent for it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any, TypeVar
from uuid import uuid4

from acp import RequestError, schema
from acp.schema import AllowedOutcome, ClientCapabilities

from specchat.app import updates
from specchat.chat.events import Totals
from specchat.chat.turn_summary import speculation_to_json
from specchat.errors import CancelledError, SpecchatError
from specchat.host.protocol import JsonObject
from specchat_editors.acp.editor_connection import EditorConnection

MAX_CHUNK_CHARS = 4096
NOT_ASKED = ""  # in the place of an option: the editor cannot ask the user, so there is no permission

POLL_SECONDS = 0.02  # how often a waiting thread checks for cancellation
FILE_TIMEOUT_SECONDS = 30.0  # of an answer about a file

Result = TypeVar("Result")


def chunks(kind: str, text: str, message_id: str | None = None) -> Iterator[JsonObject]:
    """A text in pieces of a size that editors draw at once."""
    for first in range(0, len(text), MAX_CHUNK_CHARS):
        yield updates.chunk(kind, text[first : first + MAX_CHUNK_CHARS], message_id)


def prompt_response(reason: updates.StopReason, totals: Totals | None = None) -> JsonObject:
    if totals is None:
        return {"stopReason": reason}
    usage = {
        "inputTokens": totals.prompt_tokens, "outputTokens": totals.completion_tokens,
        "cachedReadTokens": totals.cached_tokens,
        "totalTokens": totals.prompt_tokens + totals.completion_tokens,
    }  # fmt: skip
    return {"stopReason": reason, "usage": usage, "_meta": {"specchat": dict(speculation_stats(totals))}}


def speculation_stats(totals: Totals) -> Mapping[str, Any]:
    return {_camel_case(name): value for name, value in speculation_to_json(totals).items()}


def _camel_case(name: str) -> str:
    """The names of the protocol are written so."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@dataclass(eq=False)
class PromptTurn:
    """A prompt in progress: its cancel flag, its response, whether that was sent, and its open tool calls."""

    response: asyncio.Future[JsonObject]
    cancelled: Flag = field(default_factory=Flag)
    is_sent: Flag = field(default_factory=Flag)
    is_muted: bool = False
    open_tool_calls: set[str] = field(default_factory=set[str])

    def resolve(self, response: JsonObject | Exception) -> None:
        """Set the response, on the event loop. A second response is ignored."""
        if self.response.done():
            return
        if isinstance(response, Exception):
            self.response.set_exception(response)
        else:
            self.response.set_result(response)


@dataclass(frozen=True)
class EditorClient:
    connection: EditorConnection
    capabilities: ClientCapabilities
    loop: asyncio.AbstractEventLoop
    session_id: str

    @property
    def can_read_files(self) -> bool:
        """Whether the editor gives us the text of unsaved buffers."""
        return bool(self.capabilities.fs and self.capabilities.fs.read_text_file)

    @property
    def can_write_files(self) -> bool:
        """Whether the editor writes files itself, so that it can show the change."""
        return bool(self.capabilities.fs and self.capabilities.fs.write_text_file)

    def send_updates(self, turn: PromptTurn, *updates: JsonObject) -> None:
        """Send updates in order; called on the session thread."""
        for update in updates:
            self._run(self._send_update(turn, update))

    async def _send_update(self, turn: PromptTurn, update: JsonObject) -> None:
        if turn.is_muted or turn.response.done():
            return
        if update["sessionUpdate"] == "tool_call":
            turn.open_tool_calls.add(update["toolCallId"])
        elif update.get("status") in (updates.COMPLETED, updates.FAILED):
            turn.open_tool_calls.discard(update["toolCallId"])
        await self.notify(update)

    async def abandon_turn(self, turn: PromptTurn) -> None:
        """Resolve a turn that does not end by itself: fail its open tool calls and mute it."""
        turn.is_muted = True
        if not turn.response.done():
            await self.notify(*(updates.tool_call_end(id, is_done=False) for id in sorted(turn.open_tool_calls)))
        turn.resolve(prompt_response("cancelled"))

    async def notify(self, *updates: JsonObject) -> None:
        """Send updates that belong to no turn; called on the event loop. A disconnected editor is ignored."""
        for update in updates:
            try:
                await self.connection.notify("session/update", {"sessionId": self.session_id, "update": update})
            except ConnectionError:
                return

    def send_notice(self, text: str) -> None:
        """Say something between two turns; called on the session thread."""
        self._run(self.notify(*chunks(updates.ANSWER_CHUNK, f"{text}\n", uuid4().hex)))

    def request_permission(self, turn: PromptTurn, tool_call: JsonObject, options: Sequence[JsonObject]) -> str:
        """The id of the option that the user chose, or NOT_ASKED; CancelledError if the request was cancelled."""
        try:
            answer = self._request(turn, "session/request_permission", toolCall=tool_call, options=options)
            outcome = schema.RequestPermissionResponse.model_validate(answer).outcome
        except RequestError:
            return NOT_ASKED
        if not isinstance(outcome, AllowedOutcome):
            raise CancelledError("the permission request was cancelled")
        return outcome.option_id

    def read_file(self, turn: PromptTurn, path: Path) -> str | None:
        """The text in the editor's buffer; None when the editor has none, so that the file must be read from disk.

        SpecchatError when the editor does not answer: it may have unsaved text, which the file's must not replace.
        """
        if not self.can_read_files:
            return None
        try:
            answer = self._request(turn, "fs/read_text_file", path=str(path))
            return schema.ReadTextFileResponse.model_validate(answer).content
        except (RequestError, ValueError):
            return None

    def write_file(self, turn: PromptTurn, path: Path, text: str) -> None:
        """Let the editor write a file. After a SpecchatError the file must not be written in another way."""
        try:
            self._request(turn, "fs/write_text_file", path=str(path), content=text)
        except RequestError as error:
            raise SpecchatError(f"{path}: the editor did not write the file: {error}") from None

    def _request(self, turn: PromptTurn, method: str, **params: Any) -> Any:
        """What the editor answers; about a file it must do so in time, and the user may take as long as they like."""
        deadline = time.monotonic() + FILE_TIMEOUT_SECONDS

        def check() -> None:
            if turn.cancelled.is_set():
                raise CancelledError("stopped")
            if "path" in params and time.monotonic() > deadline:
                raise SpecchatError(
                    f"{params['path']}: the editor did not answer within {FILE_TIMEOUT_SECONDS:.0f} s; try again"
                )

        return self._run(self.connection.request(method, {"sessionId": self.session_id, **params}), check).result()

    def _run(self, work: Coroutine[Any, Any, Result], check: Callable[[], None] = lambda: None) -> Future[Result]:
        """Run a coroutine on the event loop until it is done; ConnectionError when the loop ends.

        While it waits, `check` is called now and then; what it raises ends the work.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise ConnectionError("the editor has disconnected") from None
        while not wait([future], POLL_SECONDS).done:
            if self.loop.is_closed():
                work.close()  # the loop may have ended before the work began
                raise ConnectionError("the editor has disconnected")
            try:
                check()
            except SpecchatError:
                future.cancel()
                raise
        return future
