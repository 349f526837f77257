"""The methods of the protocol, and the process that serves them. Everything slow happens elsewhere.

Not a subclass of the SDK's `Agent`, which would advertise methods that are not implemented.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError, run_agent, schema
from acp import Agent as SdkAgent
from acp.interfaces import Client

from specchat import __version__
from specchat.acp import stored_sessions
from specchat.acp.acp_session import AcpSession, open_session
from specchat.acp.client_requests import EditorClient, PromptTurn
from specchat.acp.message_guard import LineStream, MessageGuard, RequestId
from specchat.acp.session_config import commands_update
from specchat.app.tool_sources import SourceRequest
from specchat.context.workspace_roots import checked_roots
from specchat.editors.stdio import ExitStatus, stop_on_signals
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import SessionRequest
from specchat.hub.runnable_models import RunnableModel, runnable_models
from specchat.profile import Profile

RESOURCE_NOT_FOUND = -32002

Result = TypeVar("Result")
MakeSessionRequest = Callable[[Path], SessionRequest]
ProfileOf = Callable[[Path], Profile]  # for a session in a folder
CAPABILITIES = schema.AgentCapabilities(
    load_session=True,
    prompt_capabilities=schema.PromptCapabilities(embedded_context=True, image=False, audio=False),
    session_capabilities=schema.SessionCapabilities(
        list=schema.SessionListCapabilities(),
        resume=schema.SessionResumeCapabilities(),
        close=schema.SessionCloseCapabilities(),
        delete=schema.SessionDeleteCapabilities(),
        additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
    ),
    field_meta={"specchat": {"v": 1}},
)
FLUSH_SECONDS = 0.3
MODEL_LIST_SECONDS = 0.5


class Agent:
    def __init__(self, guard: MessageGuard, make_session_request: MakeSessionRequest, profile_of: ProfileOf) -> None:
        self._guard, self._make_session_request, self._profile_of = guard, make_session_request, profile_of
        self._sessions: dict[str, AcpSession] = {}
        self._capabilities = schema.ClientCapabilities()
        self._after_response: dict[RequestId, Callable[[], None]] = {}  # runs once the response is sent
        self._active_turns: dict[RequestId, tuple[AcpSession, PromptTurn]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._runnable: asyncio.Future[list[RunnableModel]] | None = None
        guard.on_response_sent, guard.on_request_cancelled, guard.on_disconnect = (
            self._on_response_sent,
            self._cancel_request,
            self.cancel_all_turns,
        )

    def on_connect(self, client: Client) -> None:
        """Called by the SDK with its client side of the connection."""
        self._client = client

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: object = None,
    ) -> schema.InitializeResponse:
        """Answer with our protocol version, whatever version the editor offers."""
        self._capabilities = client_capabilities or self._capabilities
        self._runnable = self._runnable or asyncio.ensure_future(asyncio.to_thread(lambda: [*runnable_models()]))
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="specchat", title="specchat", version=__version__),
            agent_capabilities=CAPABILITIES,
            auth_methods=[],
        )

    async def authenticate(self, method_id: str) -> None:
        """No method exists: nothing needs a login."""
        raise RequestError.invalid_params({"details": f"there is no method {method_id!r}; no login is necessary"})

    async def new_session(
        self,
        cwd: str,
        mcp_servers: Sequence[Any],
        additional_directories: Sequence[str] | None = None,
        request_id: RequestId = None,
    ) -> schema.NewSessionResponse:
        """Open a new conversation and start the engine process if necessary. Loads no model."""
        session = await _with_protocol_errors(self._open_session(None, cwd, additional_directories, mcp_servers))
        self._register_session(session, request_id)
        return schema.NewSessionResponse(
            session_id=session.id, modes=session.config.modes(), config_options=[*session.config.options()]
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: Sequence[str] | None = None,
        request_id: RequestId = None,
    ) -> schema.LoadSessionResponse:
        """Open a stored conversation and replay its turns."""
        session = await self._resume_session(session_id, cwd, additional_directories, mcp_servers, request_id)
        await session.client.notify(*await session.replay())
        return schema.LoadSessionResponse(modes=session.config.modes(), config_options=[*session.config.options()])

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: Sequence[str] | None = None,
        request_id: RequestId = None,
    ) -> schema.ResumeSessionResponse:
        """Open a stored conversation without a replay."""
        session = await self._resume_session(session_id, cwd, additional_directories, mcp_servers, request_id)
        return schema.ResumeSessionResponse(modes=session.config.modes(), config_options=[*session.config.options()])

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None) -> schema.ListSessionsResponse:
        """Conversations of all front ends, the last used first."""
        return await _with_protocol_errors(asyncio.to_thread(stored_sessions.list_sessions, cwd, cursor))

    async def close_session(self, session_id: str) -> schema.CloseSessionResponse:
        """Close a session; an unknown one is not an error."""
        if session := self._sessions.pop(session_id, None):
            session.close()
        return schema.CloseSessionResponse()

    async def ext_method(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Methods that the SDK does not route; `MessageGuard` sends them here."""
        match name:
            case "session/delete":
                session_id = params.get("sessionId")
                if not isinstance(session_id, str):
                    raise RequestError.invalid_params({"details": "sessionId must be a string"})
                await self.close_session(session_id)
                await _with_protocol_errors(asyncio.to_thread(stored_sessions.delete_session, session_id))
                return {}
            case "logout":
                return {}
            case _:
                raise RequestError.method_not_found(f"_{name}")

    async def set_session_mode(self, mode_id: str, session_id: str) -> schema.SetSessionModeResponse:
        """Set the option `mode`, for editors without session options."""
        await _with_protocol_errors(self._find_session(session_id).set_option("mode", mode_id))
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._find_session(session_id)
        await _with_protocol_errors(session.set_option(config_id, str(value)))
        return schema.SetSessionConfigOptionResponse(config_options=[*session.config.options()])

    async def prompt(
        self, prompt: Sequence[Any], session_id: str, request_id: RequestId = None
    ) -> schema.PromptResponse:
        session, turn = self._find_session(session_id), PromptTurn(asyncio.get_running_loop().create_future())
        self._active_turns[request_id] = session, turn
        self._after_response[request_id] = turn.is_sent.set
        try:
            return await _with_protocol_errors(session.prompt(prompt, turn))
        finally:
            del self._active_turns[request_id]

    async def cancel(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        await asyncio.gather(
            self._guard.cancel_own_requests(session_id), *(session.cancel(turn) for turn in session.turns)
        )

    def cancel_all_turns(self) -> None:
        """Cancel all turns: the editor disconnected, or this process ends."""
        for session, turn in self._active_turns.values():
            self._start_task(session.cancel(turn))

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    async def _open_session(
        self, session_id: str | None, cwd: str, others: Sequence[str] | None, servers: Sequence[Any]
    ) -> AcpSession:
        workspace = checked_roots(cwd, others or ())
        if session_id:
            request = SessionRequest(session_id=session_id)
        else:
            request = self._make_session_request(workspace.main_root)
        client_for = partial(EditorClient, self._client, self._capabilities, asyncio.get_running_loop())
        sources = SourceRequest(self._profile_of(workspace.main_root), workspace.main_root, servers)
        return await open_session(request, workspace, sources, client_for, await self._runnable_models())

    async def _runnable_models(self) -> Sequence[RunnableModel]:
        """The models for the menu; none where they are not known soon, because a session must open within a second."""
        if self._runnable is None:
            return ()
        await asyncio.wait([self._runnable], timeout=MODEL_LIST_SECONDS)
        return self._runnable.result() if self._runnable.done() and not self._runnable.exception() else ()

    async def _resume_session(
        self, session_id: str, cwd: str, others: Sequence[str] | None, servers: Sequence[Any] | None, id: RequestId
    ) -> AcpSession:
        if (
            session_id not in self._sessions
            and await _with_protocol_errors(asyncio.to_thread(stored_sessions.find_session, session_id)) is None
        ):
            raise RequestError(RESOURCE_NOT_FOUND, "there is no such session", {"sessionId": session_id})
        session = await _with_protocol_errors(self._open_session(session_id, cwd, others, servers or ()))
        await self.close_session(session_id)
        self._register_session(session, id)
        return session

    def _register_session(self, session: AcpSession, request_id: RequestId) -> None:
        """Send the slash commands after the response: an editor drops updates of a session that is new to it."""
        self._sessions[session.id] = session
        self._after_response[request_id] = lambda: self._start_task(session.client.notify(commands_update()))

    def _find_session(self, session_id: str) -> AcpSession:
        if session_id not in self._sessions:
            raise RequestError(RESOURCE_NOT_FOUND, "there is no such session", {"sessionId": session_id})
        return self._sessions[session_id]

    def _on_response_sent(self, id: RequestId) -> None:
        if callback := self._after_response.pop(id, None):
            callback()

    def _cancel_request(self, id: RequestId) -> None:
        """Cancel in a new task, which runs after the task of the prompt, even if that one was just created."""
        self._start_task(self._cancel_turn(id))

    async def _cancel_turn(self, id: RequestId) -> None:
        if id in self._active_turns:
            session, turn = self._active_turns[id]
            await session.cancel(turn)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _with_protocol_errors(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return await work
    except UsageError as error:
        raise RequestError.invalid_params({"details": str(error)}) from None
    except (SpecchatError, ConnectionError) as error:
        raise RequestError.internal_error({"details": str(error)}) from None


async def serve_acp(
    incoming: int,
    outgoing: int,
    make_session_request: MakeSessionRequest,
    profile_of: ProfileOf = lambda _folder: Profile(),
    *,
    handles_signals: bool = False,
) -> int:
    """Serve one editor until it disconnects or a signal arrives; returns the exit code.

    Threads that wait for the engine may remain; the caller ends the process without joining them.
    """
    stream = LineStream(incoming, outgoing)
    status = stop_on_signals(stream.stop) if handles_signals else ExitStatus()
    guard = MessageGuard(stream)
    agent = Agent(guard, make_session_request, profile_of)
    await run_agent(cast("SdkAgent", agent), guard, use_unstable_protocol=True)
    agent.close()
    await stream.flush(FLUSH_SECONDS)
    return status.code
