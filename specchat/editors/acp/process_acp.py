"""From the first byte to the last: the agent on two descriptors, until the editor goes or a signal comes."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

from acp import Agent as AgentOfSdk
from acp import run_agent

from specchat.editors.acp.agent import Agent, MakeSessionRequest
from specchat.editors.acp.message_guard import MessageGuard
from specchat.editors.acp.stdio import StdioLines

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FLUSH_SECONDS = 0.3


async def serve_acp(
    incoming: int, outgoing: int, make_session_request: MakeSessionRequest, *, handles_signals: bool = False
) -> int:
    """Answer an editor. Returns the exit code: 0 when it hung up, 128 and the signal when one ended us.

    Threads that wait for the engine may be left; whoever runs a process ends it without them.
    """
    pipe = StdioLines(incoming, outgoing)
    code = 0

    def stop(number: int) -> None:
        nonlocal code
        code = 128 + number
        pipe.stop()

    for number in SIGNALS if handles_signals else ():
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    guard = MessageGuard(pipe)
    agent = Agent(guard, make_session_request)
    await run_agent(cast("AgentOfSdk", agent), guard, use_unstable_protocol=True)
    agent.close()
    await pipe.flush(FLUSH_SECONDS)
    return code
