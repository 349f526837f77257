"""The methods of the protocol. What cannot be asked is refused here; everything that takes time is done elsewhere.

Not a subclass of the SDK's `Agent`: that would make every method exist, also those that nobody serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from specchat import __version__
from specchat.edit.workspace_roots import checked_roots
from specchat.editors.acp import stored_sessions
from specchat.editors.acp.acp_session import AcpSession, open_session
from specchat.editors.acp.client_requests import EditorClient, PromptTurn
from specchat.editors.acp.message_guard import MessageGuard, RequestId
from specchat.editors.acp.slash_commands import commands_update
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import SessionRequest

RESOURCE_NOT_FOUND = -32002

Result = TypeVar("Result")
MakeSessionRequest = Callable[[Path], SessionRequest]
CAPABILITIES = AgentCapabilities(
    load_session=True,
    prompt_capabilities=PromptCapabilities(embedded_context=True, image=False, audio=False),
    session_capabilities=SessionCapabilities(
        list=SessionListCapabilities(),
        resume=SessionResumeCapabilities(),
        close=SessionCloseCapabilities(),
        delete=SessionDeleteCapabilities(),
        additional_directories=SessionAdditionalDirectoriesCapabilities(),
    ),
    field_meta={"specchat": {"v": 1}},
)


class Agent:
    """One editor's agent."""

    def __init__(self, guard: MessageGuard, make_session_request: MakeSessionRequest) -> None:
        self._guard, self._make_session_request = guard, make_session_request
        self._sessions: dict[str, AcpSession] = {}
        self._capabilities = ClientCapabilities()
        self._after_response: dict[RequestId, Callable[[], None]] = {}  # what is to be done once a request is answered
        self._active_turns: dict[RequestId, tuple[AcpSession, PromptTurn]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        guard.on_response_sent, guard.on_request_cancelled, guard.on_disconnect = (
            self._on_response_sent,
            self._cancel_request,
            self.cancel_all_turns,
        )

    def on_connect(self, client: Client) -> None:
        """The SDK's other half of the connection."""
        self._client = client

    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, client_info: object = None
    ) -> InitializeResponse:
        """Whatever version was offered, this is the one that we speak."""
        self._capabilities = client_capabilities or self._capabilities
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="specchat", title="specchat", version=__version__),
            agent_capabilities=CAPABILITIES,
            auth_methods=[],
        )

    async def authenticate(self, method_id: str) -> None:
        """There is nothing to log in to."""
        raise RequestError.invalid_params({"details": f"there is no method {method_id!r}: nothing needs a login"})

    async def new_session(
        self,
        cwd: str,
        mcp_servers: Sequence[Any],
        additional_directories: Sequence[str] | None = None,
        request_id: RequestId = None,
    ) -> NewSessionResponse:
        """A new conversation. No model is touched; the engine process is started if it does not run."""
        room = await _with_protocol_errors(self._open_session(None, cwd, additional_directories, mcp_servers))
        self._register_session(room, request_id)
        return NewSessionResponse(
            session_id=room.id, modes=room.config.modes(), config_options=[*room.config.options()]
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: Sequence[str] | None = None,
        request_id: RequestId = None,
    ) -> LoadSessionResponse:
        """A conversation of yesterday, told again before it goes on."""
        room = await self._resume_session(session_id, cwd, additional_directories, mcp_servers or ())
        self._register_session(room, request_id)
        await room.client.notify(*await room.replay())
        return LoadSessionResponse(modes=room.config.modes(), config_options=[*room.config.options()])

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: Sequence[str] | None = None,
        request_id: RequestId = None,
    ) -> ResumeSessionResponse:
        """The same without telling it again."""
        room = await self._resume_session(session_id, cwd, additional_directories, mcp_servers or ())
        self._register_session(room, request_id)
        return ResumeSessionResponse(modes=room.config.modes(), config_options=[*room.config.options()])

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None) -> ListSessionsResponse:
        """Conversations of all front ends, the last used first."""
        return await _with_protocol_errors(asyncio.to_thread(stored_sessions.list_sessions, cwd, cursor))

    async def close_session(self, session_id: str) -> CloseSessionResponse:
        """Let go of a session; one that is not there is no trouble."""
        if room := self._sessions.pop(session_id, None):
            room.close()
        return CloseSessionResponse()

    async def ext_method(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Methods that the SDK does not route yet; the guard sends them here."""
        match name:
            case "session/delete":
                session = params.get("sessionId")
                if not isinstance(session, str):
                    raise RequestError.invalid_params({"details": "sessionId must be a string"})
                await self.close_session(session)
                await _with_protocol_errors(asyncio.to_thread(stored_sessions.delete_session, session))
                return {}
            case "logout":
                return {}
            case _:
                raise RequestError.method_not_found(f"_{name}")

    async def set_session_mode(self, mode_id: str, session_id: str) -> SetSessionModeResponse:
        """As the option `mode`, for editors that know no options."""
        await _with_protocol_errors(self._find_session(session_id).set_option("mode", mode_id))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool
    ) -> SetSessionConfigOptionResponse:
        """Another value for an option; all of them are the answer."""
        room = self._find_session(session_id)
        await _with_protocol_errors(room.set_option(config_id, str(value)))
        return SetSessionConfigOptionResponse(config_options=[*room.config.options()])

    async def prompt(self, prompt: Sequence[Any], session_id: str, request_id: RequestId = None) -> PromptResponse:
        """One turn, or a place in the queue."""
        room, turn = self._find_session(session_id), PromptTurn(asyncio.get_running_loop().create_future())
        self._active_turns[request_id] = room, turn
        self._after_response[request_id] = turn.is_sent.set
        try:
            return await _with_protocol_errors(room.prompt(prompt, turn))
        finally:
            del self._active_turns[request_id]

    async def cancel(self, session_id: str) -> None:
        """End what runs and what waits in a session."""
        room = self._sessions.get(session_id)
        if room is None:
            return
        await asyncio.gather(self._guard.cancel_own_requests(session_id), *(room.cancel(turn) for turn in room.turns))

    def cancel_all_turns(self) -> None:
        """The editor has gone, or we have to."""
        for room, turn in self._active_turns.values():
            self._start_task(room.cancel(turn))

    def close(self) -> None:
        """Hang up everywhere."""
        for room in self._sessions.values():
            room.close()
        self._sessions.clear()

    async def _open_session(
        self, session: str | None, cwd: str, others: Sequence[str] | None, servers: Sequence[Any]
    ) -> AcpSession:
        places = checked_roots(cwd, others or ())
        wish = SessionRequest(session_id=session) if session else self._make_session_request(places.main_root)
        return await open_session(wish, places, [str(server.name) for server in servers], self._client_for)

    async def _resume_session(
        self, session: str, cwd: str, others: Sequence[str] | None, servers: Sequence[Any]
    ) -> AcpSession:
        if (
            session not in self._sessions
            and await _with_protocol_errors(asyncio.to_thread(stored_sessions.find_session, session)) is None
        ):
            raise RequestError(RESOURCE_NOT_FOUND, "there is no such session", {"sessionId": session})
        room = await _with_protocol_errors(self._open_session(session, cwd, others, servers))
        await self.close_session(session)
        return room

    def _client_for(self, session: str) -> EditorClient:
        return EditorClient(self._client, self._capabilities, asyncio.get_running_loop(), session)

    def _register_session(self, session: AcpSession, request_id: RequestId) -> None:
        """The menu follows the answer: an editor that does not know the session yet would drop it."""
        self._sessions[session.id] = session
        self._after_response[request_id] = lambda: self._start_task(session.client.notify(commands_update()))

    def _find_session(self, session: str) -> AcpSession:
        if session not in self._sessions:
            raise RequestError(RESOURCE_NOT_FOUND, "there is no such session", {"sessionId": session})
        return self._sessions[session]

    def _on_response_sent(self, id: RequestId) -> None:
        if follow := self._after_response.pop(id, None):
            follow()

    def _cancel_request(self, id: RequestId) -> None:
        """As a task of its own: it runs behind that of the prompt, which may have come a moment ago."""
        self._start_task(self._cancel_turn(id))

    async def _cancel_turn(self, id: RequestId) -> None:
        if id in self._active_turns:
            room, turn = self._active_turns[id]
            await room.cancel(turn)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _with_protocol_errors(work: Coroutine[Any, Any, Result]) -> Result:
    """What our own errors are in the words of the protocol."""
    try:
        return await work
    except UsageError as error:
        raise RequestError.invalid_params({"details": str(error)}) from None
    except (SpecchatError, ConnectionError) as error:
        raise RequestError.internal_error({"details": str(error)}) from None
