"""The methods of the protocol: one function for each, and the table METHODS.

Every request gets a response; no request can end the host except `shutdown`.
"""

import logging
import os
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from specchat.chat.fim_request import FimRequest
from specchat.errors import HostError, SpecchatError, UsageError
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.host.answer_delivery import OpenSession
from specchat.host.connection import ClientConnection
from specchat.host.environment import variable_digests
from specchat.host.loaded_engines import LoadedEngines
from specchat.host.open_sessions import OpenSessions, short_name
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_FAILED,
    JsonObject,
    RpcError,
    RpcRequest,
    RpcResponse,
    new_id,
    request_from_json,
    turn_from_json,
)
from specchat.host.wire_values import from_json
from specchat.process_memory import mapped_bytes, own_bytes
from specchat.profile.settings import Settings

log = logging.getLogger(__name__)

MAX_CLIENT_NAME_CHARS = 60


@dataclass(frozen=True)
class HostIdentity:
    """Identifies a host. A client compares the version and the configuration with its own."""

    version: str
    configuration_hash: str
    instance_id: str = field(default_factory=new_id)
    environment: dict[str, str] = field(default_factory=variable_digests)  # a digest of each inherited variable


@dataclass(eq=False)
class RpcHandler:
    """Dispatches requests. Holds what the methods need: identity, sessions, clients."""

    identity: HostIdentity
    sessions: OpenSessions
    clients: set[ClientConnection] = field(default_factory=set)
    started_at: float = field(default_factory=time.monotonic)
    is_closing: bool = False

    def dispatch(self, client: ClientConnection, rpc_request: RpcRequest) -> None:
        """Run a method and queue its response. A notification (a request without an id) gets none."""
        try:
            response = self._call_method(client, rpc_request)
        except SpecchatError as error:
            response = RpcError(rpc_request.id, REQUEST_FAILED, str(error), type(error).__name__)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            log.info("invalid params of %s: %r", rpc_request.method, error)
            message = f"{rpc_request.method}: a parameter is missing or wrong: {error}"
            response = RpcError(rpc_request.id, INVALID_PARAMS, message)
        except Exception as error:  # the edge: no request may end the host
            log.exception("%s failed", rpc_request.method)
            message = f"{rpc_request.method} failed ({type(error).__name__}); see the log of the host"
            response = RpcError(rpc_request.id, INTERNAL_ERROR, message)
        if rpc_request.id is not None:
            self._respond(client, rpc_request.method, response)

    def _respond(self, client: ClientConnection, method: str, response: RpcResponse | RpcError) -> None:
        try:
            client.queue_message(response)
        except Exception as error:  # the edge: a result that is not JSON must not end the host
            log.exception("the response of %s", method)
            message = f"{method} failed ({type(error).__name__}); see the log of the host"
            client.queue_message(RpcError(response.id, INTERNAL_ERROR, message))

    def _call_method(self, client: ClientConnection, rpc_request: RpcRequest) -> RpcResponse | RpcError:
        if rpc_request.method not in METHODS:
            return RpcError(rpc_request.id, METHOD_NOT_FOUND, f"unknown method {rpc_request.method!r}")
        return RpcResponse(rpc_request.id, METHODS[rpc_request.method](self, client, rpc_request.params))


def ask(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Queue a turn with the settings of the client. `turn` is an id from the client, which can cancel it at once.

    The events of the answer follow; the last one is `finished` or `failed`. `turns` are those before it, as
    `turn_from_json` reads them, in a session that is not stored; by default those that the host knows.
    """
    _check_is_open(handler)
    session = handler.sessions.find(_required_text(params, "session"), _settings(params))
    request = request_from_json(params["request"])
    if "turns" in params:
        handler.sessions.replace_turns(session, list(map(turn_from_json, params["turns"])))
    session.clients.add(client)
    handler.sessions.queue_turn(session, turn_id := _turn_id(params), request, client)
    return {"turn": turn_id}


def complete(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Queue a completion of a gap in a text. Cancels the previous completion of the same client.

    Its events follow, as those of a turn.
    """
    _check_is_open(handler)
    session = handler.sessions.find(_required_text(params, "session"))
    fim_request = from_json(FimRequest, params)
    handler.sessions.queue_completion(session, turn_id := _turn_id(params), fim_request, client)
    return {"turn": turn_id}


def hello(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Identify host and client. Loads nothing."""
    client.client_name = str(params.get("client", client.client_name))[:MAX_CLIENT_NAME_CHARS]
    history = handler.sessions.history
    return {
        **asdict(handler.identity),
        "pid": os.getpid(),
        "state": handler.sessions.queue.models.state,
        "is_busy": bool(handler.sessions.delivery.live),
        "history_path": str(history.path),
        "warning": history.warning,
    }


def open_session(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Open a new session, or a stored one. Its models load in the background. `is_stored` false: not in the history."""
    sessions, settings = handler.sessions, _settings(params)
    if "session" in params:
        session = sessions.find(_required_text(params, "session"), settings)
    else:
        thread = Thread(new_id(), "", str(params.get("kind", "chat")), str(params.get("folder", "")))
        is_stored, text_scope = bool(params.get("is_stored", True)), str(params.get("text_scope", ""))
        session = sessions.load_thread(thread, settings, is_stored=is_stored, text_scope=text_scope)
    session.clients.add(client)
    return {**_session_info(handler, session), "settings": session.settings.to_json()}


def set_settings(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The settings from the next turn on, as `profile/settings.py` writes them."""
    session = handler.sessions.find(_required_text(params, "session"), _settings(params))
    return _session_info(handler, session)


def list_variants(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The drafters that can run with the loaded models; `is_loaded` false: that is not known yet."""
    session = handler.sessions.find(_required_text(params, "session"))
    loaded = handler.sessions.queue.models.engines.find(session.profile)
    variants = loaded.engine.variants if loaded else None
    return {"variants": sorted(variants or ()), "is_loaded": variants is not None}


def session_info(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    return _session_info(handler, handler.sessions.find(_required_text(params, "session")))


def cancel(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Cancel a turn; its partial answer stays."""
    handler.sessions.queue.cancel(_required_text(params, "turn"))
    return {}


def rewind(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Remove the last turns."""
    session = handler.sessions.find(_required_text(params, "session"))
    handler.sessions.rewind(session, max(0, int(params.get("count", 1))))
    return _session_info(handler, session)


def select_version(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Continue with another version of a turn: `turn` is a turn with the same turn before it."""
    session = handler.sessions.find(_required_text(params, "session"))
    handler.sessions.select_version(session, _required_text(params, "turn"))
    return _session_info(handler, session)


def store_session(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Store a session without turns, for a client that keeps other data for it."""
    session = handler.sessions.find(_required_text(params, "session"))
    handler.sessions.store(session, _required_text(params, "name"))
    return _session_info(handler, session)


def fork(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Open a copy of a session, up to `turn` or up to its last turn."""
    session = handler.sessions.fork(handler.sessions.thread(_required_text(params, "session")), params.get("turn"))
    session.clients.add(client)
    return {**_session_info(handler, session), "settings": session.settings.to_json()}


def list_sessions(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The sessions of a folder or kind, or the matches of a full-text search."""
    history, search_text = handler.sessions.history, str(params.get("search", ""))
    if search_text:
        found = history.search(search_text)
    else:
        is_deleted = bool(params.get("is_deleted"))
        threads = history.threads(folder=_text(params, "folder"), kind=_text(params, "kind"), deleted=is_deleted)
        found = [(thread, "") for thread in threads]
    details = history.details()
    rows = [{**asdict(thread), **asdict(details[thread.id]), "snippet": text} for thread, text in found]
    return {"sessions": rows}


def rename(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    thread = handler.sessions.thread(_required_text(params, "session"))
    handler.sessions.update_thread(replace(thread, name=short_name(_required_text(params, "name"))))
    return {}


def delete(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    handler.sessions.delete(handler.sessions.thread(_required_text(params, "session")))
    return {}


def restore(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    thread = handler.sessions.thread(_required_text(params, "session"))
    handler.sessions.update_thread(replace(thread, deleted=None))
    return {}


def recover_answer(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Store the part of an answer that a client received from a host that died."""
    answer = from_json(StoredAnswer, params["answer"])
    return {"is_recovered": handler.sessions.history.recover_answer(_required_text(params, "turn"), answer)}


def explain_routing(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The drafter of the last answer, and the reason for this choice."""
    routed = handler.sessions.find(_required_text(params, "session")).last_routed
    return asdict(routed) if routed else {}


def stats(handler: RpcHandler, _client: ClientConnection, _params: JsonObject) -> JsonObject:
    sessions, progress = handler.sessions, handler.sessions.queue.models.progress
    return {
        "state": sessions.queue.models.state,
        "loading": asdict(progress) if progress else None,
        "memory_bytes": (engines := sessions.queue.models.engines).memory_bytes,
        "process_bytes": _process_bytes(engines),
        "sessions": len(sessions.by_id),
        "live_turns": sessions.delivery.turn_count,
        "clients": sorted(client.client_name for client in handler.clients),
        "uptime_seconds": time.monotonic() - handler.started_at,
        "warning": sessions.history.warning,
    }


def _process_bytes(engines: LoadedEngines) -> dict[str, int]:
    """What this process holds beside its models; nothing where the system does not say it.

    The rest is what nothing here counts: buffers of passes, and memory that was freed since the last quiet moment.
    """
    own, libraries = own_bytes(), engines.loader.library_bytes
    rest = own - (libraries or own) - sum(engines.memory_bytes.values())  # below 0 where models are on a GPU
    parts = {"Python and libraries": libraries or own, "mapped files": mapped_bytes(), "other": max(rest, 0)}
    return {name: size for name, size in parts.items() if size}


def step_seconds(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """For how many seconds one step of a turn has been computed, which a client asks when no event comes."""
    return {"seconds": handler.sessions.queue.step_seconds(_required_text(params, "turn"))}


def models_state(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The state of the models of a session, and what they wait for. Loads them on request, if there is room."""
    session, requests_loading = handler.sessions.find(_required_text(params, "session")), params.get("requests_loading")
    models = handler.sessions.queue.models
    return asdict(models.state_of(session.profile, requests_loading=bool(requests_loading)))


def inspect(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The decoding steps of a turn, by id (`turn`) or by `turn_index` from 0; by default the last turn.

    The result has `steps` in the format of `history/step_encoding.py`, in base64; empty where no steps are stored.
    For a running turn these are the steps so far.
    """
    session = handler.sessions.find(_required_text(params, "session"))
    ids = session.turns.ids
    if "turn" in params:
        turn_id = _required_text(params, "turn")
        index = ids.index(turn_id) if turn_id in ids else len(ids)
    else:
        index = int(params.get("turn_index", len(ids) - 1))
    if not 0 <= index < len(ids):
        raise UsageError("there is no such turn in this conversation")
    live = handler.sessions.delivery.live.get(ids[index])
    packed = live.steps.packed() if live else handler.sessions.history.packed_steps(ids[index])
    return {"turn": ids[index], "turn_index": index, "steps": b64encode(packed).decode("ascii")}


def unload(handler: RpcHandler, _client: ClientConnection, _params: JsonObject) -> JsonObject:
    """Unload the models; the next turn loads them again."""
    handler.sessions.queue.models.unload()
    return {}


def shutdown(handler: RpcHandler, _client: ClientConnection, _params: JsonObject) -> JsonObject:
    handler.is_closing = True
    handler.sessions.delivery.cancel_all()
    return {}


METHODS: dict[str, Callable[[RpcHandler, ClientConnection, JsonObject], JsonObject]] = {
    method.__name__: method
    for method in (
        ask, complete, hello, open_session, session_info, set_settings, list_variants, cancel, rewind,
        select_version, store_session, fork, list_sessions, rename, delete, restore, recover_answer, explain_routing,
        stats, step_seconds, inspect, models_state, unload, shutdown,
    )
}  # fmt: skip


def _check_is_open(handler: RpcHandler) -> None:
    if handler.is_closing:
        raise HostError("the engine process is shutting down; send the request again")


def _turn_id(params: JsonObject) -> str:
    return _required_text(params, "turn") if "turn" in params else new_id()


def _required_text(params: JsonObject, name: str) -> str:
    if not (value := _text(params, name)):
        raise ValueError(f"{name} must be a text")
    return value


def _text(params: JsonObject, name: str) -> str | None:
    value = params.get(name)
    if not isinstance(value, str | None):
        raise ValueError(f"{name} must be a text")
    return value


def _settings(params: JsonObject) -> Settings | None:
    """The settings that a client sends along; None where it sends none."""
    settings = params.get("settings")
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise ValueError("settings must be an object")
    return Settings.from_json(settings)


def _session_info(handler: RpcHandler, session: OpenSession) -> JsonObject:
    return {
        "session": session.thread.id,
        "name": session.thread.name,
        "profile": session.thread.profile,
        "turn_count": len(session.turns.ids),
        "is_stored": session.is_stored,
        "context_window": handler.sessions.queue.models.context_window(session.profile),
        "state": handler.sessions.queue.models.state,
        "is_loaded": handler.sessions.queue.models.is_loaded(session.profile),
    }
