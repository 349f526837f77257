"""The methods of the protocol, and the process that serves them. Everything slow happens elsewhere."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from acp import PROTOCOL_VERSION, RequestError, schema

from specchat import __version__
from specchat.app.tool_sources import SourceRequest
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.errors import InputError, UsageError
from specchat.host.client import SessionRequest
from specchat.host.protocol import JsonObject
from specchat.profile.keys import Profile
from specchat_editors.acp import stored_sessions
from specchat_editors.acp.acp_session import AcpSession, open_session
from specchat_editors.acp.client_requests import EditorClient, PromptTurn
from specchat_editors.acp.editor_connection import Call, EditorConnection, Handler
from specchat_editors.acp.session_config import RunnableModel, commands_update, runnable_models
from specchat_editors.stdio import ExitStatus, stop_on_signals

RESOURCE_NOT_FOUND = -32002

OpenRequest = schema.NewSessionRequest | schema.LoadSessionRequest | schema.ResumeSessionRequest
MakeSessionRequest = Callable[[Path], SessionRequest]
ProfileOf = Callable[[Path], Profile]  # for a session in a folder
CAPABILITIES: JsonObject = {
    "loadSession": True,
    "promptCapabilities": {"embeddedContext": True, "image": False, "audio": False},
    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {}},
    "_meta": {"specchat": {"v": 1}},
}
FLUSH_SECONDS = 0.3
NO_SERVERS = {"mcpServers": []}  # editors leave them out, although the protocol wants a list
MODEL_LIST_SECONDS = 0.5


class Agent:
    def __init__(
        self, connection: EditorConnection, make_session_request: MakeSessionRequest, profile_of: ProfileOf
    ) -> None:
        self._connection, self._make_session_request, self._profile_of = connection, make_session_request, profile_of
        self._sessions: dict[str, AcpSession] = {}
        self._capabilities = schema.ClientCapabilities()
        self._runnable: asyncio.Future[list[RunnableModel]] | None = None
        self.handlers: Mapping[str, Handler] = {
            "initialize": self.initialize,
            "authenticate": self.authenticate,
            "logout": self.logout,
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            "session/list": self.list_sessions,
            "session/close": self.close_session,
            "session/delete": self.delete_session,
            "session/set_mode": self.set_mode,
            "session/set_config_option": self.set_config_option,
            "session/prompt": self.prompt,
            "session/cancel": self.cancel,
        }

    async def initialize(self, call: Call) -> JsonObject:
        """Answer with our protocol version, whatever version the editor offers."""
        request = schema.InitializeRequest.model_validate(call.params)
        self._capabilities = request.client_capabilities or self._capabilities
        self._runnable = self._runnable or asyncio.ensure_future(asyncio.to_thread(lambda: [*runnable_models()]))
        info = {"name": "specchat", "title": "specchat", "version": __version__}
        return {
            "protocolVersion": PROTOCOL_VERSION, "agentInfo": info, "agentCapabilities": CAPABILITIES, "authMethods": []
        }  # fmt: skip

    async def authenticate(self, call: Call) -> JsonObject:
        """No method exists: nothing needs a login."""
        method = schema.AuthenticateRequest.model_validate(call.params).method_id
        raise UsageError(f"there is no method {method!r}; no login is necessary")

    async def logout(self, _call: Call) -> JsonObject:
        """Nothing needs a login."""
        return {}

    async def new_session(self, call: Call) -> JsonObject:
        """Open a new conversation and start the engine process if necessary. Loads no model."""
        session = await self._open_session(None, schema.NewSessionRequest.model_validate(NO_SERVERS | call.params))
        self._register_session(session, call)
        return {"sessionId": session.id, **session.config.menus()}

    async def load_session(self, call: Call) -> JsonObject:
        """Open a stored conversation and replay its turns."""
        request = schema.LoadSessionRequest.model_validate(NO_SERVERS | call.params)
        session = await self._resume_session(request, call)
        await session.client.notify(*await session.replay())
        return session.config.menus()

    async def resume_session(self, call: Call) -> JsonObject:
        """Open a stored conversation without a replay."""
        session = await self._resume_session(schema.ResumeSessionRequest.model_validate(call.params), call)
        return session.config.menus()

    async def list_sessions(self, call: Call) -> JsonObject:
        """Conversations of all front ends, the last used first."""
        request = schema.ListSessionsRequest.model_validate(call.params)
        return await asyncio.to_thread(stored_sessions.list_sessions, request.cwd, request.cursor)

    async def close_session(self, call: Call) -> JsonObject:
        """Close a session; an unknown one is not an error."""
        self._close(schema.CloseSessionRequest.model_validate(call.params).session_id)
        return {}

    async def delete_session(self, call: Call) -> JsonObject:
        session_id = schema.DeleteSessionRequest.model_validate(call.params).session_id
        self._close(session_id)
        await asyncio.to_thread(stored_sessions.delete_session, session_id)
        return {}

    async def set_mode(self, call: Call) -> JsonObject:
        """Set the option `mode`, for editors without session options."""
        request = schema.SetSessionModeRequest.model_validate(call.params)
        await self._find_session(request.session_id).set_option("mode", request.mode_id)
        return {}

    async def set_config_option(self, call: Call) -> JsonObject:
        if call.params.get("type") == "boolean":
            request = schema.SetSessionConfigOptionBooleanRequest.model_validate(call.params)
        else:
            request = schema.SetSessionConfigOptionSelectRequest.model_validate(call.params)
        session = self._find_session(request.session_id)
        await session.set_option(request.config_id, str(request.value))
        return {"configOptions": session.config.options()}

    async def prompt(self, call: Call) -> JsonObject:
        request = schema.PromptRequest.model_validate(call.params)
        session = self._find_session(request.session_id)
        turn = PromptTurn(asyncio.get_running_loop().create_future())
        call.on_cancel = lambda: self._connection.start_task(session.cancel(turn))
        call.on_sent = turn.is_sent.set
        return await session.prompt(request.prompt, turn)

    async def cancel(self, call: Call) -> JsonObject:
        id = schema.CancelNotification.model_validate(call.params).session_id
        if session := self._sessions.get(id):
            cancelling = (session.cancel(turn) for turn in session.turns)
            await asyncio.gather(self._connection.cancel_requests(id), *cancelling)
        return {}

    def close(self) -> None:
        for session_id in list(self._sessions):
            self._close(session_id)

    def _close(self, session_id: str) -> None:
        if session := self._sessions.pop(session_id, None):
            session.close()

    async def _open_session(self, session_id: str | None, asked: OpenRequest) -> AcpSession:
        workspace = _checked_roots(asked.cwd, asked.additional_directories or ())
        if session_id:
            request = SessionRequest(session_id=session_id)
        else:
            request = self._make_session_request(workspace.main_root)
        client_for = partial(EditorClient, self._connection, self._capabilities, asyncio.get_running_loop())
        root, servers = workspace.main_root, asked.mcp_servers or ()
        sources = SourceRequest(self._profile_of(root), root, servers)
        return await open_session(request, workspace, sources, client_for, await _known_soon(self._runnable))

    async def _resume_session(
        self, request: schema.LoadSessionRequest | schema.ResumeSessionRequest, call: Call
    ) -> AcpSession:
        id = request.session_id
        if id not in self._sessions and await asyncio.to_thread(stored_sessions.find_session, id) is None:
            raise _no_session(id)
        session = await self._open_session(id, request)
        self._close(id)
        self._register_session(session, call)
        return session

    def _register_session(self, session: AcpSession, call: Call) -> None:
        """Send the slash commands after the response: an editor drops updates of a session that is new to it."""
        self._sessions[session.id] = session
        call.on_sent = lambda: self._connection.start_task(session.client.notify(commands_update()))

    def _find_session(self, session_id: str) -> AcpSession:
        if session_id not in self._sessions:
            raise _no_session(session_id)
        return self._sessions[session_id]


async def _known_soon(models: asyncio.Future[list[RunnableModel]] | None) -> Sequence[RunnableModel]:
    """The models for the menu; none where they are not known soon, because a session must open within a second."""
    if models is None:
        return ()
    await asyncio.wait([models], timeout=MODEL_LIST_SECONDS)
    return models.result() if models.done() and not models.exception() else ()


def _no_session(session_id: str) -> RequestError:
    return RequestError(RESOURCE_NOT_FOUND, "there is no such session", {"sessionId": session_id})


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
    connection = EditorConnection(incoming, outgoing)
    status = stop_on_signals(connection.stop) if handles_signals else ExitStatus()
    agent = Agent(connection, make_session_request, profile_of)
    await connection.serve(agent.handlers)
    agent.close()
    await connection.flush(FLUSH_SECONDS)
    return status.code


def _checked_roots(cwd: str, additional_directories: Sequence[str]) -> WorkspaceRoots:
    """The folders; InputError when one is not an absolute path of a folder."""
    folders = [Path(each) for each in (cwd, *additional_directories)]
    for folder in folders:
        if not folder.is_absolute() or not os.path.isdir(folder):  # noqa: PTH112 (`Path.is_dir` raises for a long name)
            raise InputError(f"{folder}: must be an absolute path of a folder")
    return WorkspaceRoots(folders[0], tuple(folders[1:]))
