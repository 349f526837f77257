"""Requests and updates to the editor, from the thread of a session.

Every call waits until the event loop has done it. This keeps updates in order, and a slow editor slows down only its
own session. After the end of a turn no more updates are sent for it.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any, Literal, TypeVar
from uuid import uuid4

from acp import RequestError, schema
from acp.interfaces import Client
from acp.schema import AllowedOutcome, ClientCapabilities, PromptResponse, ToolCallProgress, ToolCallStart

from specchat.chat.events import Totals
from specchat.chat.turn_summary import speculation_to_json
from specchat.errors import CancelledError, SpecchatError

MAX_CHUNK_CHARS = 4096
NOT_ASKED = ""  # in the place of an option: the editor cannot ask the user, so there is no permission

ToolKind = Literal["edit", "execute", "other", "read", "search", "think"]
StopReason = Literal["end_turn", "max_tokens", "cancelled"]
POLL_SECONDS = 0.02  # how often a waiting thread checks for cancellation
FILE_TIMEOUT_SECONDS = 30.0  # of an answer about a file

Result = TypeVar("Result")


def text_block(text: str) -> schema.TextContentBlock:
    return schema.TextContentBlock(type="text", text=text)


def text_content(text: str) -> schema.ContentToolCallContent:
    return schema.ContentToolCallContent(type="content", content=text_block(text))


def answer_chunks(text: str, message_id: str | None = None) -> Iterator[schema.AgentMessageChunk]:
    for first in range(0, len(text), MAX_CHUNK_CHARS):
        block = text_block(text[first : first + MAX_CHUNK_CHARS])
        yield schema.AgentMessageChunk(session_update="agent_message_chunk", content=block, message_id=message_id)


def user_message_chunk(text: str, message_id: str | None = None) -> schema.UserMessageChunk:
    return schema.UserMessageChunk(session_update="user_message_chunk", content=text_block(text), message_id=message_id)


def thought_chunk(text: str) -> schema.AgentThoughtChunk:
    return schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def thought_chunks(text: str) -> Iterator[schema.AgentThoughtChunk]:
    return (thought_chunk(text[first : first + MAX_CHUNK_CHARS]) for first in range(0, len(text), MAX_CHUNK_CHARS))


def tool_call_start(id: str, title: str, kind: ToolKind) -> schema.ToolCallStart:
    return schema.ToolCallStart(
        session_update="tool_call", tool_call_id=id, title=title, kind=kind, status="in_progress"
    )


def tool_call_progress(id: str, title: str | None = None) -> schema.ToolCallProgress:
    return schema.ToolCallProgress(
        session_update="tool_call_update", tool_call_id=id, status="in_progress", title=title
    )


def tool_call_end(id: str, *, is_done: bool, text: str = "", title: str | None = None) -> schema.ToolCallProgress:
    """The end of a longer operation; `text` is the error if it failed."""
    status = "completed" if is_done else "failed"
    update = schema.ToolCallProgress(session_update="tool_call_update", tool_call_id=id, status=status, title=title)
    if text:
        update.content = [text_content(text)]
    return update


def permission_tool_call(tool_call: schema.ToolCallStart) -> schema.ToolCallUpdate:
    """The tool call in a permission request, complete: some editors do not look up the earlier one."""
    return schema.ToolCallUpdate(
        tool_call_id=tool_call.tool_call_id, title=tool_call.title, kind=tool_call.kind, status=tool_call.status,
        content=tool_call.content, locations=tool_call.locations,
    )  # fmt: skip


def prompt_response(reason: StopReason, totals: Totals | None = None) -> schema.PromptResponse:
    if totals is None:
        return schema.PromptResponse(stop_reason=reason)
    usage = schema.Usage(
        input_tokens=totals.prompt_tokens, output_tokens=totals.completion_tokens,
        cached_read_tokens=totals.cached_tokens,
        total_tokens=totals.prompt_tokens + totals.completion_tokens,
    )  # fmt: skip
    meta = {"specchat": dict(speculation_stats(totals))}
    return schema.PromptResponse(stop_reason=reason, usage=usage, field_meta=meta)


def speculation_stats(totals: Totals) -> Mapping[str, Any]:
    return {_camel_case(name): value for name, value in speculation_to_json(totals).items()}


def _camel_case(name: str) -> str:
    """The names of the protocol are written so."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@dataclass(eq=False)
class PromptTurn:
    """A prompt in progress: its cancel flag, its response, whether that was sent, and its open tool calls."""

    response: asyncio.Future[PromptResponse]
    cancelled: Flag = field(default_factory=Flag)
    is_sent: Flag = field(default_factory=Flag)
    is_muted: bool = False
    open_tool_calls: set[str] = field(default_factory=set[str])

    def resolve(self, response: PromptResponse | Exception) -> None:
        """Set the response, on the event loop. A second response is ignored."""
        if self.response.done():
            return
        if isinstance(response, Exception):
            self.response.set_exception(response)
        else:
            self.response.set_result(response)


@dataclass(frozen=True)
class EditorClient:
    sdk_client: Client
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

    def send_updates(self, turn: PromptTurn, *updates: Any) -> None:
        """Send updates in order; called on the session thread."""
        for update in updates:
            future = self._submit(self._send_update(turn, update))
            while not self._poll(future):
                pass

    async def _send_update(self, turn: PromptTurn, update: Any) -> None:
        if turn.is_muted or turn.response.done():
            return
        if isinstance(update, ToolCallStart):
            turn.open_tool_calls.add(update.tool_call_id)
        elif isinstance(update, ToolCallProgress) and update.status in ("completed", "failed"):
            turn.open_tool_calls.discard(update.tool_call_id)
        await self.notify(update)

    async def abandon_turn(self, turn: PromptTurn) -> None:
        """Resolve a turn that does not end by itself: fail its open tool calls and mute it."""
        turn.is_muted = True
        if not turn.response.done():
            await self.notify(*(tool_call_end(id, is_done=False) for id in sorted(turn.open_tool_calls)))
        turn.resolve(prompt_response("cancelled"))

    async def notify(self, *updates: Any) -> None:
        """Send updates that belong to no turn; called on the event loop. A disconnected editor is ignored."""
        for update in updates:
            try:
                await self.sdk_client.session_update(session_id=self.session_id, update=update)
            except ConnectionError:
                return

    def send_notice(self, text: str) -> None:
        """Say something between two turns; called on the session thread."""
        future = self._submit(self.notify(*answer_chunks(f"{text}\n", uuid4().hex)))
        while not self._poll(future):
            pass

    def request_permission(
        self, turn: PromptTurn, tool_call: ToolCallStart, options: list[schema.PermissionOption]
    ) -> str:
        """The id of the option that the user chose, or NOT_ASKED; CancelledError if the request was cancelled."""
        update = permission_tool_call(tool_call)
        request = self.sdk_client.request_permission(session_id=self.session_id, tool_call=update, options=options)
        try:
            outcome = self._wait_for_result(turn, request).outcome
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
            request = self.sdk_client.read_text_file(session_id=self.session_id, path=str(path))
            return self._wait_for_result(turn, request, path).content
        except (RequestError, ValueError):
            return None

    def write_file(self, turn: PromptTurn, path: Path, text: str) -> None:
        """Let the editor write a file. After a SpecchatError the file must not be written in another way."""
        request = self.sdk_client.write_text_file(session_id=self.session_id, path=str(path), content=text)
        try:
            self._wait_for_result(turn, request, path)
        except RequestError as error:
            raise SpecchatError(f"{path}: the editor did not write the file: {error}") from None

    def _wait_for_result(
        self, turn: PromptTurn, client_request: Coroutine[Any, Any, Result], file: Path | None = None
    ) -> Result:
        """What the editor answers; about a file it must do so in time, and the user may take as long as they like."""
        future, deadline = self._submit(client_request), time.monotonic() + FILE_TIMEOUT_SECONDS
        while not self._poll(future):
            if turn.cancelled.is_set():
                future.cancel()
                raise CancelledError("stopped")
            if file is not None and time.monotonic() > deadline:
                future.cancel()
                raise SpecchatError(f"{file}: the editor did not answer within {FILE_TIMEOUT_SECONDS:.0f} s; try again")
        return future.result()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine on the event loop; ConnectionError when the loop has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise ConnectionError("the editor has disconnected") from None

    def _poll(self, future: Future[Any]) -> bool:
        """Wait a moment; True when done. A closed loop would never finish."""
        if not wait([future], POLL_SECONDS).done and self.loop.is_closed():
            raise ConnectionError("the editor has disconnected")
        return future.done()
