"""What a client may ask of the host: one function a method, one table, one door.

Whatever is asked, a client gets an answer, and the host lives on.
"""

from __future__ import annotations

import logging
import os
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specchat.chat.history import StoredAnswer, Thread
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, SpecchatError, UsageError
from specchat.host.connection import ClientConnection
from specchat.host.metrics_server import MetricsServer
from specchat.host.open_sessions import LiveCompletion, LiveTurn, OpenSession, OpenSessions, short_name
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    REQUEST_FAILED,
    JsonObject,
    RpcError,
    RpcRequest,
    RpcResponse,
    fim_request_from_json,
    new_id,
    request_from_json,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostIdentity:
    """Which host this is: a client compares the version and the configuration with its own."""

    version: str
    configuration_hash: str
    instance_id: str = field(default_factory=new_id)


@dataclass(eq=False)
class RpcHandler:
    """Where clients call: who the host is, what it holds, and whether it is about to end."""

    identity: HostIdentity
    sessions: OpenSessions
    metrics_server: MetricsServer
    clients: set[ClientConnection] = field(default_factory=set)
    started_at: float = field(default_factory=time.monotonic)
    is_closing: bool = False

    def dispatch(self, client: ClientConnection, rpc_request: RpcRequest) -> None:
        """Do what is asked, and answer when an answer is wanted."""
        try:
            reply = self._call_method(client, rpc_request)
        except SpecchatError as error:
            reply = RpcError(rpc_request.id, REQUEST_FAILED, str(error), type(error).__name__)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            log.info("bad params of %s: %r", rpc_request.method, error)
            reply = RpcError(
                rpc_request.id, INVALID_PARAMS, f"{rpc_request.method}: something is missing or wrong: {error}"
            )
        except Exception as error:  # the edge: no call may end the host
            log.exception("%s failed", rpc_request.method)
            reply = RpcError(
                rpc_request.id,
                INTERNAL_ERROR,
                f"{rpc_request.method} failed ({type(error).__name__}); see the host's log",
            )
        if reply is not None and rpc_request.id is not None:
            client.queue_message(reply)

    def _call_method(self, client: ClientConnection, rpc_request: RpcRequest) -> RpcResponse | RpcError | None:
        if rpc_request.method in DEFERRED_METHODS:
            DEFERRED_METHODS[rpc_request.method](self, client, rpc_request)
            return None  # its answer comes with the end of the turn
        if rpc_request.method not in METHODS:
            return RpcError(rpc_request.id, METHOD_NOT_FOUND, f"unknown method {rpc_request.method!r}")
        return RpcResponse(rpc_request.id, METHODS[rpc_request.method](self, client, rpc_request.params))


def ask(handler: RpcHandler, client: ClientConnection, rpc_request: RpcRequest) -> None:
    """Queue a turn. The client may name it, so that it can cancel it at once."""
    if handler.is_closing:
        raise HostError("the engine process is ending; ask again")
    session = handler.sessions.find(_required_text(rpc_request.params, "session"))
    request = request_from_json(rpc_request.params["request"])
    if session.thread.id not in client.subscriptions:
        client.subscribe(session.feed, session.feed.next_sequence_number)
    turn = _required_text(rpc_request.params, "turn") if "turn" in rpc_request.params else new_id()
    handler.sessions.queue_turn(session, turn, request, LiveTurn(client, rpc_request.id))


def complete(handler: RpcHandler, client: ClientConnection, rpc_request: RpcRequest) -> None:
    """Fill a gap in a text. One that its client asked for before is ended."""
    if handler.is_closing:
        raise HostError("the engine process is ending; ask again")
    session = handler.sessions.find(_required_text(rpc_request.params, "session"))
    turn = _required_text(rpc_request.params, "turn") if "turn" in rpc_request.params else new_id()
    handler.sessions.queue_completion(
        session, turn, fim_request_from_json(rpc_request.params), LiveCompletion(client, rpc_request.id)
    )


def hello(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Who is there. Loads nothing."""
    client.client_name = str(params.get("client", client.client_name))[:MAX_CLIENT_NAME_CHARS]
    history = handler.sessions.history
    return {
        **asdict(handler.identity),
        "protocol": PROTOCOL_VERSION,
        "pid": os.getpid(),
        "state": handler.sessions.queue.state,
        "busy": handler.sessions.is_busy,
        "history": str(history.path),
        "trouble": history.warning,
    }


def open_session(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """A session, new or old. Answers at once, the models load behind it. `kept: false` leaves it out of the history."""
    sessions = handler.sessions
    folder, kind = str(params.get("folder", "")), str(params.get("kind", "chat"))
    if "session" in params:
        session = sessions.find(_required_text(params, "session"))
    elif params.get("continue") and (threads := sessions.history.threads(folder=folder, kind=kind)):
        session = sessions.find(threads[0].id)
    else:
        profile = str(params.get("profile", DEFAULT_PROFILE))
        thread = Thread(new_id(), "", kind, folder, profile, _overrides(params))
        session = sessions.load_thread(thread, is_stored=bool(params.get("kept", True)))
    client.subscribe(session.feed, session.feed.next_sequence_number)
    return set_profile(handler, client, {**params, "session": session.thread.id})


def set_profile(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Another profile or other overrides, from the next turn on."""
    session = handler.sessions.find(_required_text(params, "session"))
    handler.sessions.configure(session, str(params["profile"]) if params.get("profile") else None, _overrides(params))
    return _session_info(handler, session)


def subscribe(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Hear a session, from a number on when the client has heard the ones before."""
    session = handler.sessions.find(_required_text(params, "session"))
    start = int(params.get("from", session.feed.next_sequence_number))
    if not session.feed.first_sequence_number <= start <= session.feed.next_sequence_number:
        raise HostError("this client was away for too long; the answer is in the history")
    client.subscribe(session.feed, start)
    handler.sessions.on_reconnect(session, client)
    return _session_info(handler, session)


def unsubscribe(_handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """Hear a session no longer."""
    client.unsubscribe(_required_text(params, "session"))
    return {}


def cancel(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """End a turn; the partial stays."""
    handler.sessions.queue.cancel(_required_text(params, "turn"))
    return {}


def rewind(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Take back the last turns, to ask again or otherwise. `turns` are texts `{user, answer}` to go on from instead."""
    session = handler.sessions.find(_required_text(params, "session"))
    told = [Exchange(_required_text(each, "user"), str(each["answer"])) for each in params.get("turns") or ()]
    handler.sessions.rewind(session, max(0, int(params.get("count", 1))), told)
    return _session_info(handler, session)


def store_session(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Store a session in which nothing was asked, for a client that did something else there."""
    session = handler.sessions.find(_required_text(params, "session"))
    handler.sessions.store(session, _required_text(params, "name"))
    return _session_info(handler, session)


def fork(handler: RpcHandler, client: ClientConnection, params: JsonObject) -> JsonObject:
    """A second conversation from the same beginning."""
    session = handler.sessions.fork(handler.sessions.thread(_required_text(params, "session")), params.get("turn"))
    client.subscribe(session.feed, session.feed.next_sequence_number)
    return _session_info(handler, session)


def list_sessions(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """The sessions of a folder or kind, or those where words were said."""
    history, words = handler.sessions.history, str(params.get("search", ""))
    if words:
        return {"sessions": [{**asdict(thread), "found": found} for thread, found in history.search(words)]}
    threads = history.threads(folder=params.get("folder"), kind=params.get("kind"), deleted=bool(params.get("deleted")))
    return {"sessions": [asdict(thread) for thread in threads]}


def rename(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Give a session another name."""
    thread = handler.sessions.thread(_required_text(params, "session"))
    handler.sessions.update_thread(replace(thread, name=short_name(_required_text(params, "name"))))
    return {}


def delete(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Take a session from the lists; `restore` brings it back."""
    handler.sessions.update_thread(
        replace(handler.sessions.thread(_required_text(params, "session")), deleted=time.time())
    )
    return {}


def restore(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Bring a deleted session back."""
    handler.sessions.update_thread(replace(handler.sessions.thread(_required_text(params, "session")), deleted=None))
    return {}


def recover_answer(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Take back what a client heard of an answer whose host was killed."""
    answered = StoredAnswer(
        _required_text(params, "text"), tuple(params["ids"]), bytes(params["kinds"]), tuple(params["sources"]),
        str(params.get("variant", "")), params.get("seed"),
    )  # fmt: skip
    return {"mended": handler.sessions.history.recover_answer(_required_text(params, "turn"), answered)}


def explain_routing(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Who drafted the last answer, and the reason in words."""
    routed = handler.sessions.find(_required_text(params, "session")).last_routed
    return asdict(routed) if routed else {}


def stats(handler: RpcHandler, _client: ClientConnection, _params: JsonObject) -> JsonObject:
    """What the host holds and does."""
    sessions = handler.sessions
    return {
        "state": sessions.queue.state,
        "memory": sessions.queue.memory_bytes(),
        "sessions": len(sessions.by_id),
        "turns": sum(len(session.live_turns) for session in sessions.by_id.values()),
        "clients": sorted(client.client_name for client in handler.clients),
        "seconds": time.monotonic() - handler.started_at,
        "trouble": sessions.history.warning,
        "meters": handler.metrics_server.port,
    }


def inspect(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """What was guessed in a turn: `turn` is its id, `number` its place from 0 on; the last one if neither is said.

    `steps` is the record of `chat/step_encoding.py` in base64, empty for a turn without one; of a turn that is being
    written, what there is of it by now.
    """
    session = handler.sessions.find(_required_text(params, "session"))
    ids = list(session.turns_in_engine)
    if "turn" in params:
        wanted = _required_text(params, "turn")
        place = ids.index(wanted) if wanted in ids else len(ids)
    else:
        place = int(params.get("number", len(ids) - 1))
    if not 0 <= place < len(ids):
        raise UsageError("there is no such turn in this conversation")
    live = session.live_turns.get(ids[place])
    packed = live.steps.packed() if live else handler.sessions.history.packed_steps(ids[place])
    return {"turn": ids[place], "number": place, "steps": b64encode(packed).decode("ascii")}


def metrics_port(handler: RpcHandler, _client: ClientConnection, params: JsonObject) -> JsonObject:
    """Serve the page of meters on this port of the machine, on none when it is 0; answers where it is."""
    if "port" in params:
        handler.metrics_server.set_port(int(params["port"]))
    return {"port": handler.metrics_server.port}


def unload(handler: RpcHandler, _client: ClientConnection, _params: JsonObject) -> JsonObject:
    """Give back the models; the next question loads them again."""
    handler.sessions.queue.unload()
    return {}


def shutdown(handler: RpcHandler, _client: ClientConnection, _params: JsonObject) -> JsonObject:
    """End every turn, then the host."""
    handler.is_closing = True
    handler.sessions.cancel_all()
    return {}


DEFERRED_METHODS: dict[str, Callable[[RpcHandler, ClientConnection, RpcRequest], None]] = {
    "ask": ask,
    "complete": complete,
}
DEFAULT_PROFILE = "chat"
MAX_CLIENT_NAME_CHARS = 60
METHODS: dict[str, Callable[[RpcHandler, ClientConnection, JsonObject], JsonObject]] = {
    "hello": hello, "open": open_session, "close": unsubscribe, "keep": store_session, "fork": fork,
    "list": list_sessions, "rename": rename,
    "delete": delete, "restore": restore, "subscribe": subscribe, "cancel": cancel, "rewind": rewind, "mend": recover_answer,
    "set": set_profile, "why": explain_routing, "stats": stats, "metrics": metrics_port, "inspect": inspect, "unload": unload,
    "shutdown": shutdown,
}  # fmt: skip


def _required_text(params: JsonObject, name: str) -> str:
    value = params[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a text")
    return value


def _overrides(params: JsonObject) -> dict[str, Any]:
    settings = params.get("overrides") or {}
    if not isinstance(settings, dict):
        raise ValueError("overrides must be an object")
    return settings


def _session_info(handler: RpcHandler, session: OpenSession) -> JsonObject:
    return {
        "session": session.thread.id,
        "name": session.thread.name,
        "profile": session.thread.profile,
        "turns": len(session.turns_in_engine),
        "window": handler.sessions.callbacks.context_window(session.profile),
        "next": session.feed.next_sequence_number,
        "live": list(session.live_turns),
        "state": handler.sessions.queue.state,
    }
