"""From the first byte to the last: the agent on two descriptors, until the editor goes or a signal comes."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

from acp import Agent as AgentOfSdk
from acp import run_agent

from specchat.editors.acp.agent import Agent, WishFor
from specchat.editors.acp.message_guard import Guard
from specchat.editors.acp.stdio import Pipe

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FLUSH_SECONDS = 0.3


async def serve(incoming: int, outgoing: int, wish_for: WishFor, *, hears_signals: bool = False) -> int:
    """Answer an editor. Returns the exit code: 0 when it hung up, 128 and the signal when one ended us.

    Threads that wait for the engine may be left; whoever runs a process ends it without them.
    """
    pipe = Pipe(incoming, outgoing)
    code = 0

    def stop(number: int) -> None:
        nonlocal code
        code = 128 + number
        pipe.stop()

    for number in SIGNALS if hears_signals else ():
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    guard = Guard(pipe)
    agent = Agent(guard, wish_for)
    await run_agent(cast("AgentOfSdk", agent), guard, use_unstable_protocol=True)
    agent.close()
    await pipe.flush(FLUSH_SECONDS)
    return code
