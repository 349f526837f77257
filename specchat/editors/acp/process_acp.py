"""The process of an ACP agent, from its descriptors to its exit code."""

from __future__ import annotations

from typing import cast

from acp import Agent as SdkAgent
from acp import run_agent

from specchat.editors.acp.agent import Agent, MakeSessionRequest
from specchat.editors.acp.line_stream import LineStream
from specchat.editors.acp.message_guard import MessageGuard
from specchat.editors.stdio import ExitStatus, stop_on_signals

FLUSH_SECONDS = 0.3


async def serve_acp(
    incoming: int, outgoing: int, make_session_request: MakeSessionRequest, *, handles_signals: bool = False
) -> int:
    """Serve one editor until it disconnects or a signal arrives; returns the exit code.

    Threads that wait for the engine may remain; the caller ends the process without joining them.
    """
    stream = LineStream(incoming, outgoing)
    status = stop_on_signals(stream.stop) if handles_signals else ExitStatus()
    guard = MessageGuard(stream)
    agent = Agent(guard, make_session_request)
    await run_agent(cast("SdkAgent", agent), guard, use_unstable_protocol=True)
    agent.close()
    await stream.flush(FLUSH_SECONDS)
    return status.code
