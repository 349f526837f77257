"""One session: the queued prompts, and the single thread that runs them in order.

Everything here runs on the event loop, except `_run_turn`, which runs on that thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from acp import RequestError

from specchat.app.command_registry import ChatState
from specchat.app.tool_sources import SourceRequest, ToolSources
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.host.client import Conversation, SessionRequest
from specchat.host.protocol import JsonObject
from specchat_editors.acp.client_requests import EditorClient, PromptTurn, prompt_response
from specchat_editors.acp.prompt_blocks import Prompt, parse_blocks
from specchat_editors.acp.prompt_handler import CLIENT, PromptHandler
from specchat_editors.acp.session_config import RunnableModel, SessionConfig

MAX_QUEUED_PROMPTS = 8
GRACE_SECONDS = 0.15  # for the engine to end a turn by itself and report its usage
SEND_TIMEOUT_SECONDS = 30.0


async def open_session(
    session_request: SessionRequest,
    workspace: WorkspaceRoots,
    source_request: SourceRequest,
    client_for: Callable[[str], EditorClient],
    runnable: Sequence[RunnableModel],
) -> AcpSession:
    """Open a conversation in the engine process, which is started if necessary. Loads no model and builds no source."""
    session_request = replace(session_request, folder=str(workspace.main_root))
    pool = ThreadPoolExecutor(1, thread_name_prefix="acp-session")
    try:
        opening = asyncio.get_running_loop().run_in_executor(pool, lambda: Conversation(session_request, CLIENT))
        conversation = await opening
    except BaseException:
        pool.shutdown(wait=False)
        raise
    chat = ChatState(conversation, sources=ToolSources(source_request), workspace=workspace)
    client = client_for(conversation.session_id)
    config = SessionConfig(conversation.settings, runnable=tuple(runnable))
    return AcpSession(PromptHandler(chat, session_request, client, config), chat.sources, pool)


class AcpSession:
    def __init__(self, handler: PromptHandler, sources: ToolSources, pool: ThreadPoolExecutor) -> None:
        self.id, self.client = handler.client.session_id, handler.client
        self.turns: list[PromptTurn] = []
        self._handler, self._sources, self._pool = handler, sources, pool

    @property
    def config(self) -> SessionConfig:
        return self._handler.config

    async def replay(self) -> Sequence[JsonObject]:
        """The updates for all turns and edits so far, after the queued prompts have finished."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._handler.replay)

    async def prompt(self, blocks: Sequence[Any], turn: PromptTurn) -> JsonObject:
        if len(self.turns) > MAX_QUEUED_PROMPTS:
            raise RequestError(-32600, f"{MAX_QUEUED_PROMPTS} prompts of this session are queued already")
        prompt = parse_blocks(blocks, self._handler.workspace)
        self.turns.append(turn)
        self._pool.submit(self._run_turn, prompt, turn)
        try:
            return await turn.response
        finally:
            self.turns.remove(turn)

    async def cancel(self, turn: PromptTurn) -> None:
        """Cancel a turn. A queued one ends at once; a running one gets a moment to report its usage."""
        turn.cancelled.set()
        if turn in self.turns[:1]:
            await asyncio.wait([turn.response], timeout=GRACE_SECONDS)
        await self.client.abandon_turn(turn)

    async def set_option(self, option: str, value: str) -> None:
        self._handler.config = self.config.with_option(option, value)
        self._pool.submit(self._handler.apply_config)
        await self.client.notify(*self.config.updates())

    def close(self) -> None:
        """Cancel everything; the conversation stays in the history."""
        for turn in self.turns:
            turn.cancelled.set()
            turn.resolve(prompt_response("cancelled"))
            turn.is_sent.set()
        self._pool.submit(self._handler.conversation.close)
        self._pool.submit(self._sources.close)
        self._pool.shutdown(wait=False)

    def _run_turn(self, prompt: Prompt, turn: PromptTurn) -> None:
        """Run a prompt, and wait until its response is sent before the next one starts."""
        if turn.cancelled.is_set():
            return
        response = self._handler.handle(prompt, turn)
        self.client.loop.call_soon_threadsafe(turn.resolve, response)
        turn.is_sent.wait(SEND_TIMEOUT_SECONDS)
