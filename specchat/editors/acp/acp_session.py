"""One session: the prompts that wait, and the one thread that does them in order.

Everything here belongs to the event loop, but for `_take_turn`, which runs on the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from acp import RequestError
from acp.schema import PromptResponse

from specchat.commands.command_registry import ChatState
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.editors.acp.client_requests import EditorClient, PromptTurn
from specchat.editors.acp.edit_log import ReplayUpdate
from specchat.editors.acp.prompt_blocks import Prompt, parse_blocks
from specchat.editors.acp.prompt_handler import CLIENT, PromptHandler
from specchat.editors.acp.session_config import SessionConfig
from specchat.editors.acp.session_updates import prompt_response
from specchat.host.client import Conversation, SessionRequest

MAX_QUEUED_PROMPTS = 8
GRACE_SECONDS = 0.15  # for the engine to end a turn by itself, with what it cost
SEND_TIMEOUT_SECONDS = 30.0


async def open_session(
    session_request: SessionRequest,
    workspace: WorkspaceRoots,
    unused_mcp_servers: Sequence[str],
    client_for: Callable[[str], EditorClient],
) -> AcpSession:
    """Have the engine process open the conversation, and start it if it must be. Loads no model."""
    session_request = replace(session_request, folder=str(workspace.main_root))
    pool = ThreadPoolExecutor(1, thread_name_prefix="acp-session")
    try:
        opening = asyncio.get_running_loop().run_in_executor(pool, lambda: Conversation(session_request, CLIENT))
        conversation = await opening
    except BaseException:
        pool.shutdown(wait=False)
        raise
    return AcpSession(
        PromptHandler(
            ChatState(conversation), session_request, workspace, client_for(conversation.session_id), unused_mcp_servers
        ),
        pool,
    )


class AcpSession:
    """A session of the editor."""

    def __init__(self, handler: PromptHandler, pool: ThreadPoolExecutor) -> None:
        self.id, self.client = handler.client.session_id, handler.client
        self.turns: list[PromptTurn] = []
        self._handler, self._pool = handler, pool

    @property
    def config(self) -> SessionConfig:
        """What is chosen for the next question."""
        return self._handler.config

    async def replay(self) -> Sequence[ReplayUpdate]:
        """What was said and edited so far, once everything that waits is done."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._handler.replay)

    async def prompt(self, blocks: Sequence[Any], turn: PromptTurn) -> PromptResponse:
        """One prompt, when its turn comes."""
        if len(self.turns) > MAX_QUEUED_PROMPTS:
            raise RequestError(-32600, f"{MAX_QUEUED_PROMPTS} prompts of this session wait already")
        prompt = parse_blocks(blocks, self._handler.workspace)
        self.turns.append(turn)
        self._pool.submit(self._run_turn, prompt, turn)
        try:
            return await turn.response
        finally:
            self.turns.remove(turn)

    async def cancel(self, turn: PromptTurn) -> None:
        """End a prompt. One that waits is answered now; one that runs may say within a moment what it cost."""
        turn.cancelled.set()
        if turn in self.turns[:1]:
            await asyncio.wait([turn.response], timeout=GRACE_SECONDS)
        await self.client.abandon_turn(turn)

    async def set_option(self, option: str, value: str) -> None:
        """Another mode, profile or variant, from the next turn on."""
        self._handler.config = self.config.with_option(option, value)
        self._pool.submit(self._handler.apply_config)
        await self.client.notify(*self.config.updates())

    def close(self) -> None:
        """End everything; the conversation stays in the history."""
        for turn in self.turns:
            turn.cancelled.set()
            turn.resolve(prompt_response("cancelled"))
            turn.is_sent.set()
        self._pool.submit(self._handler.conversation.close)
        self._pool.shutdown(wait=False)

    def _run_turn(self, prompt: Prompt, turn: PromptTurn) -> None:
        """One prompt to its end, and a moment longer: its answer must be out before the next one is heard of."""
        if turn.cancelled.is_set():
            return
        outcome = self._handler.handle(prompt, turn)
        self.client.loop.call_soon_threadsafe(turn.resolve, outcome)
        turn.is_sent.wait(SEND_TIMEOUT_SECONDS)
