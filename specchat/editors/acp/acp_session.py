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

from specchat.commands.registry import Talk
from specchat.editors.acp.client_requests import Editor, Turn
from specchat.editors.acp.edit_log import Told
from specchat.editors.acp.prompt_blocks import Prompt, read_blocks
from specchat.editors.acp.prompt_handler import CLIENT, Talking
from specchat.editors.acp.session_config import Settings
from specchat.editors.acp.updates import ended
from specchat.editors.acp.workspace_roots import Places
from specchat.host.client import Conversation, Wish

MOST_WAITING = 8
GRACE_SECONDS = 0.15  # for the engine to end a turn by itself, with what it cost
SENT_SECONDS = 30.0


async def open_room(
    wish: Wish, places: Places, unused_servers: Sequence[str], editor_for: Callable[[str], Editor]
) -> Room:
    """Have the engine process open the conversation, and start it if it must be. Loads no model."""
    wish = replace(wish, folder=str(places.folder))
    pool = ThreadPoolExecutor(1, thread_name_prefix="acp-session")
    try:
        opening = asyncio.get_running_loop().run_in_executor(pool, lambda: Conversation(wish, CLIENT))
        conversation = await opening
    except BaseException:
        pool.shutdown(wait=False)
        raise
    return Room(Talking(Talk(conversation), wish, places, editor_for(conversation.session), unused_servers), pool)


class Room:
    """A session of the editor."""

    def __init__(self, talking: Talking, pool: ThreadPoolExecutor) -> None:
        self.id, self.editor = talking.editor.session, talking.editor
        self.turns: list[Turn] = []
        self._talking, self._pool = talking, pool

    @property
    def settings(self) -> Settings:
        """What is chosen for the next question."""
        return self._talking.settings

    async def told(self) -> Sequence[Told]:
        """What was said and edited so far, once everything that waits is done."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._talking.told)

    async def prompt(self, blocks: Sequence[Any], turn: Turn) -> PromptResponse:
        """One prompt, when its turn comes."""
        if len(self.turns) > MOST_WAITING:
            raise RequestError(-32600, f"{MOST_WAITING} prompts of this session wait already")
        prompt = read_blocks(blocks, self._talking.places)
        self.turns.append(turn)
        self._pool.submit(self._take_turn, prompt, turn)
        try:
            return await turn.outcome
        finally:
            self.turns.remove(turn)

    async def cancel(self, turn: Turn) -> None:
        """End a prompt. One that waits is answered now; one that runs may say within a moment what it cost."""
        turn.cancelled.set()
        if turn in self.turns[:1]:
            await asyncio.wait([turn.outcome], timeout=GRACE_SECONDS)
        await self.editor.give_up(turn)

    async def choose(self, option: str, value: str) -> None:
        """Another mode, profile or variant, from the next turn on."""
        self._talking.settings = self.settings.with_choice(option, value)
        self._pool.submit(self._talking.configure)
        await self.editor.announce(*self.settings.updates())

    def close(self) -> None:
        """End everything; the conversation stays in the history."""
        for turn in self.turns:
            turn.cancelled.set()
            turn.settle(ended("cancelled"))
            turn.is_sent.set()
        self._pool.submit(self._talking.conversation.close)
        self._pool.shutdown(wait=False)

    def _take_turn(self, prompt: Prompt, turn: Turn) -> None:
        """One prompt to its end, and a moment longer: its answer must be out before the next one is heard of."""
        if turn.cancelled.is_set():
            return
        outcome = self._talking.outcome(prompt, turn)
        self.editor.loop.call_soon_threadsafe(turn.settle, outcome)
        turn.is_sent.wait(SENT_SECONDS)
