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
from specchat.editors.acp import stored_sessions
from specchat.editors.acp.acp_session import Room, open_room
from specchat.editors.acp.client_requests import Editor, Turn
from specchat.editors.acp.message_guard import Guard, Id
from specchat.editors.acp.slash_commands import available
from specchat.editors.acp.workspace_roots import checked_places
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import Wish

NOT_FOUND = -32002

Result = TypeVar("Result")
WishFor = Callable[[Path], Wish]
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

    def __init__(self, guard: Guard, wish_for: WishFor) -> None:
        self._guard, self._wish_for = guard, wish_for
        self._rooms: dict[str, Room] = {}
        self._capabilities = ClientCapabilities()
        self._after: dict[Id, Callable[[], None]] = {}  # what is to be done once a request is answered
        self._turns: dict[Id, tuple[Room, Turn]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        guard.on_answered, guard.on_cancelled, guard.on_end = self._note_answered, self._cancel_request, self.end_turns

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
        request_id: Id = None,
    ) -> NewSessionResponse:
        """A new conversation. No model is touched; the engine process is started if it does not run."""
        room = await _refusing(self._opened(None, cwd, additional_directories, mcp_servers))
        self._begin(room, request_id)
        return NewSessionResponse(
            session_id=room.id, modes=room.settings.modes(), config_options=[*room.settings.options()]
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: Sequence[str] | None = None,
        request_id: Id = None,
    ) -> LoadSessionResponse:
        """A conversation of yesterday, told again before it goes on."""
        room = await self._resumed(session_id, cwd, additional_directories, mcp_servers or ())
        self._begin(room, request_id)
        await room.editor.announce(*await room.told())
        return LoadSessionResponse(modes=room.settings.modes(), config_options=[*room.settings.options()])

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: Sequence[str] | None = None,
        request_id: Id = None,
    ) -> ResumeSessionResponse:
        """The same without telling it again."""
        room = await self._resumed(session_id, cwd, additional_directories, mcp_servers or ())
        self._begin(room, request_id)
        return ResumeSessionResponse(modes=room.settings.modes(), config_options=[*room.settings.options()])

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None) -> ListSessionsResponse:
        """Conversations of all front ends, the last used first."""
        return await _refusing(asyncio.to_thread(stored_sessions.listed, cwd, cursor))

    async def close_session(self, session_id: str) -> CloseSessionResponse:
        """Let go of a session; one that is not there is no trouble."""
        if room := self._rooms.pop(session_id, None):
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
                await _refusing(asyncio.to_thread(stored_sessions.delete, session))
                return {}
            case "logout":
                return {}
            case _:
                raise RequestError.method_not_found(f"_{name}")

    async def set_session_mode(self, mode_id: str, session_id: str) -> SetSessionModeResponse:
        """As the option `mode`, for editors that know no options."""
        await _refusing(self._room(session_id).choose("mode", mode_id))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool
    ) -> SetSessionConfigOptionResponse:
        """Another value for an option; all of them are the answer."""
        room = self._room(session_id)
        await _refusing(room.choose(config_id, str(value)))
        return SetSessionConfigOptionResponse(config_options=[*room.settings.options()])

    async def prompt(self, prompt: Sequence[Any], session_id: str, request_id: Id = None) -> PromptResponse:
        """One turn, or a place in the queue."""
        room, turn = self._room(session_id), Turn(asyncio.get_running_loop().create_future())
        self._turns[request_id] = room, turn
        self._after[request_id] = turn.is_sent.set
        try:
            return await _refusing(room.prompt(prompt, turn))
        finally:
            del self._turns[request_id]

    async def cancel(self, session_id: str) -> None:
        """End what runs and what waits in a session."""
        room = self._rooms.get(session_id)
        if room is None:
            return
        await asyncio.gather(self._guard.withdraw(session_id), *(room.cancel(turn) for turn in room.turns))

    def end_turns(self) -> None:
        """The editor has gone, or we have to."""
        for room, turn in self._turns.values():
            self._go(room.cancel(turn))

    def close(self) -> None:
        """Hang up everywhere."""
        for room in self._rooms.values():
            room.close()
        self._rooms.clear()

    async def _opened(
        self, session: str | None, cwd: str, others: Sequence[str] | None, servers: Sequence[Any]
    ) -> Room:
        places = checked_places(cwd, others or ())
        wish = Wish(session=session) if session else self._wish_for(places.folder)
        return await open_room(wish, places, [str(server.name) for server in servers], self._editor_for)

    async def _resumed(self, session: str, cwd: str, others: Sequence[str] | None, servers: Sequence[Any]) -> Room:
        if session not in self._rooms and await _refusing(asyncio.to_thread(stored_sessions.known, session)) is None:
            raise RequestError(NOT_FOUND, "there is no such session", {"sessionId": session})
        room = await _refusing(self._opened(session, cwd, others, servers))
        await self.close_session(session)
        return room

    def _editor_for(self, session: str) -> Editor:
        return Editor(self._client, self._capabilities, asyncio.get_running_loop(), session)

    def _begin(self, room: Room, request_id: Id) -> None:
        """The menu follows the answer: an editor that does not know the session yet would drop it."""
        self._rooms[room.id] = room
        self._after[request_id] = lambda: self._go(room.editor.announce(available()))

    def _room(self, session: str) -> Room:
        if session not in self._rooms:
            raise RequestError(NOT_FOUND, "there is no such session", {"sessionId": session})
        return self._rooms[session]

    def _note_answered(self, id: Id) -> None:
        if follow := self._after.pop(id, None):
            follow()

    def _cancel_request(self, id: Id) -> None:
        """As a task of its own: it runs behind that of the prompt, which may have come a moment ago."""
        self._go(self._cancel_turn(id))

    async def _cancel_turn(self, id: Id) -> None:
        if id in self._turns:
            room, turn = self._turns[id]
            await room.cancel(turn)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _refusing(work: Coroutine[Any, Any, Result]) -> Result:
    """What our own errors are in the words of the protocol."""
    try:
        return await work
    except UsageError as error:
        raise RequestError.invalid_params({"details": str(error)}) from None
    except (SpecchatError, ConnectionError) as error:
        raise RequestError.internal_error({"details": str(error)}) from None
