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

from specchat.chat.history import Answered, Thread
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, SpecchatError, UsageError
from specchat.host.connection import Connection
from specchat.host.metrics_server import MetersDoor
from specchat.host.open_sessions import LiveGap, LiveTurn, OpenSession, Sessions, short_name
from specchat.host.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PROTOCOL,
    REFUSED,
    UNKNOWN_METHOD,
    Answer,
    Call,
    Json,
    Refusal,
    gap_from_json,
    new_id,
    request_from_json,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Which host this is: a client compares the version and the configuration with its own."""

    version: str
    configuration: str
    instance: str = field(default_factory=new_id)


@dataclass(eq=False)
class Desk:
    """Where clients call: who the host is, what it holds, and whether it is about to end."""

    identity: Identity
    sessions: Sessions
    meters: MetersDoor
    clients: set[Connection] = field(default_factory=set)
    begun: float = field(default_factory=time.monotonic)
    is_closing: bool = False

    def answer(self, client: Connection, call: Call) -> None:
        """Do what is asked, and answer when an answer is wanted."""
        try:
            reply = self._reply(client, call)
        except SpecchatError as error:
            reply = Refusal(call.id, REFUSED, str(error), type(error).__name__)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            log.info("bad params of %s: %r", call.method, error)
            reply = Refusal(call.id, INVALID_PARAMS, f"{call.method}: something is missing or wrong: {error}")
        except Exception as error:  # the edge: no call may end the host
            log.exception("%s failed", call.method)
            reply = Refusal(
                call.id, INTERNAL_ERROR, f"{call.method} failed ({type(error).__name__}); see the host's log"
            )
        if reply is not None and call.id is not None:
            client.say(reply)

    def _reply(self, client: Connection, call: Call) -> Answer | Refusal | None:
        if call.method in LATER:
            LATER[call.method](self, client, call)
            return None  # its answer comes with the end of the turn
        if call.method not in CALLS:
            return Refusal(call.id, UNKNOWN_METHOD, f"unknown method {call.method!r}")
        return Answer(call.id, CALLS[call.method](self, client, call.params))


def ask(desk: Desk, client: Connection, call: Call) -> None:
    """Queue a turn. The client may name it, so that it can cancel it at once."""
    if desk.is_closing:
        raise HostError("the engine process is ending; ask again")
    session = desk.sessions.find(_text(call.params, "session"))
    request = request_from_json(call.params["request"])
    if session.thread.id not in client.feeds:
        client.listen(session.feed, session.feed.next)
    turn = _text(call.params, "turn") if "turn" in call.params else new_id()
    desk.sessions.ask(session, turn, request, LiveTurn(client, call.id))


def complete(desk: Desk, client: Connection, call: Call) -> None:
    """Fill a gap in a text. One that its client asked for before is ended."""
    if desk.is_closing:
        raise HostError("the engine process is ending; ask again")
    session = desk.sessions.find(_text(call.params, "session"))
    turn = _text(call.params, "turn") if "turn" in call.params else new_id()
    desk.sessions.fill(session, turn, gap_from_json(call.params), LiveGap(client, call.id))


def hello(desk: Desk, client: Connection, params: Json) -> Json:
    """Who is there. Loads nothing."""
    client.name = str(params.get("client", client.name))[:NAME_LIMIT]
    history = desk.sessions.history
    return {
        **asdict(desk.identity),
        "protocol": PROTOCOL,
        "pid": os.getpid(),
        "state": desk.sessions.queue.state,
        "busy": desk.sessions.is_busy,
        "history": str(history.path),
        "trouble": history.trouble,
    }


def open_session(desk: Desk, client: Connection, params: Json) -> Json:
    """A session, new or old. Answers at once, the models load behind it. `kept: false` leaves it out of the history."""
    sessions = desk.sessions
    folder, kind = str(params.get("folder", "")), str(params.get("kind", "chat"))
    if "session" in params:
        session = sessions.find(_text(params, "session"))
    elif params.get("continue") and (threads := sessions.history.threads(folder=folder, kind=kind)):
        session = sessions.find(threads[0].id)
    else:
        profile = str(params.get("profile", DEFAULT_PROFILE))
        thread = Thread(new_id(), "", kind, folder, profile, _settings(params))
        session = sessions.enter(thread, is_kept=bool(params.get("kept", True)))
    client.listen(session.feed, session.feed.next)
    return set_profile(desk, client, {**params, "session": session.thread.id})


def set_profile(desk: Desk, _client: Connection, params: Json) -> Json:
    """Another profile or other overrides, from the next turn on."""
    session = desk.sessions.find(_text(params, "session"))
    desk.sessions.configure(session, str(params["profile"]) if params.get("profile") else None, _settings(params))
    return _described(desk, session)


def subscribe(desk: Desk, client: Connection, params: Json) -> Json:
    """Hear a session, from a number on when the client has heard the ones before."""
    session = desk.sessions.find(_text(params, "session"))
    start = int(params.get("from", session.feed.next))
    if not session.feed.first <= start <= session.feed.next:
        raise HostError("this client was away for too long; the answer is in the history")
    client.listen(session.feed, start)
    desk.sessions.adopt(session, client)
    return _described(desk, session)


def close(_desk: Desk, client: Connection, params: Json) -> Json:
    """Hear a session no longer."""
    client.leave(_text(params, "session"))
    return {}


def cancel(desk: Desk, _client: Connection, params: Json) -> Json:
    """End a turn; the partial stays."""
    desk.sessions.queue.cancel(_text(params, "turn"))
    return {}


def rewind(desk: Desk, _client: Connection, params: Json) -> Json:
    """Take back the last turns, to ask again or otherwise. `turns` are texts `{user, answer}` to go on from instead."""
    session = desk.sessions.find(_text(params, "session"))
    told = [Exchange(_text(each, "user"), str(each["answer"])) for each in params.get("turns") or ()]
    desk.sessions.rewind(session, max(0, int(params.get("count", 1))), told)
    return _described(desk, session)


def keep(desk: Desk, _client: Connection, params: Json) -> Json:
    """Store a session in which nothing was asked, for a client that did something else there."""
    session = desk.sessions.find(_text(params, "session"))
    desk.sessions.keep(session, _text(params, "name"))
    return _described(desk, session)


def fork(desk: Desk, client: Connection, params: Json) -> Json:
    """A second conversation from the same beginning."""
    session = desk.sessions.fork(desk.sessions.thread(_text(params, "session")), params.get("turn"))
    client.listen(session.feed, session.feed.next)
    return _described(desk, session)


def list_sessions(desk: Desk, _client: Connection, params: Json) -> Json:
    """The sessions of a folder or kind, or those where words were said."""
    history, words = desk.sessions.history, str(params.get("search", ""))
    if words:
        return {"sessions": [{**asdict(thread), "found": found} for thread, found in history.search(words)]}
    threads = history.threads(folder=params.get("folder"), kind=params.get("kind"), deleted=bool(params.get("deleted")))
    return {"sessions": [asdict(thread) for thread in threads]}


def rename(desk: Desk, _client: Connection, params: Json) -> Json:
    """Give a session another name."""
    thread = desk.sessions.thread(_text(params, "session"))
    desk.sessions.change(replace(thread, name=short_name(_text(params, "name"))))
    return {}


def delete(desk: Desk, _client: Connection, params: Json) -> Json:
    """Take a session from the lists; `restore` brings it back."""
    desk.sessions.change(replace(desk.sessions.thread(_text(params, "session")), deleted=time.time()))
    return {}


def restore(desk: Desk, _client: Connection, params: Json) -> Json:
    """Bring a deleted session back."""
    desk.sessions.change(replace(desk.sessions.thread(_text(params, "session")), deleted=None))
    return {}


def mend(desk: Desk, _client: Connection, params: Json) -> Json:
    """Take back what a client heard of an answer whose host was killed."""
    answered = Answered(
        _text(params, "text"), tuple(params["ids"]), bytes(params["kinds"]), tuple(params["sources"]),
        str(params.get("variant", "")), params.get("seed"),
    )  # fmt: skip
    return {"mended": desk.sessions.history.mend(_text(params, "turn"), answered)}


def why(desk: Desk, _client: Connection, params: Json) -> Json:
    """Who drafted the last answer, and the reason in words."""
    routed = desk.sessions.find(_text(params, "session")).routed
    return asdict(routed) if routed else {}


def stats(desk: Desk, _client: Connection, _params: Json) -> Json:
    """What the host holds and does."""
    sessions = desk.sessions
    return {
        "state": sessions.queue.state,
        "memory": sessions.queue.memory(),
        "sessions": len(sessions.open),
        "turns": sum(len(session.live) for session in sessions.open.values()),
        "clients": sorted(client.name for client in desk.clients),
        "seconds": time.monotonic() - desk.begun,
        "trouble": sessions.history.trouble,
        "meters": desk.meters.port,
    }


def inspect(desk: Desk, _client: Connection, params: Json) -> Json:
    """What was guessed in a turn: `turn` is its id, `number` its place from 0 on; the last one if neither is said.

    `steps` is the record of `chat/step_encoding.py` in base64, empty for a turn without one; of a turn that is being
    written, what there is of it by now.
    """
    session = desk.sessions.find(_text(params, "session"))
    ids = list(session.path)
    if "turn" in params:
        wanted = _text(params, "turn")
        place = ids.index(wanted) if wanted in ids else len(ids)
    else:
        place = int(params.get("number", len(ids) - 1))
    if not 0 <= place < len(ids):
        raise UsageError("there is no such turn in this conversation")
    live = session.live.get(ids[place])
    packed = live.steps.packed() if live else desk.sessions.history.packed_steps(ids[place])
    return {"turn": ids[place], "number": place, "steps": b64encode(packed).decode("ascii")}


def metrics(desk: Desk, _client: Connection, params: Json) -> Json:
    """Serve the page of meters on this port of the machine, on none when it is 0; answers where it is."""
    if "port" in params:
        desk.meters.move(int(params["port"]))
    return {"port": desk.meters.port}


def unload(desk: Desk, _client: Connection, _params: Json) -> Json:
    """Give back the models; the next question loads them again."""
    desk.sessions.queue.unload()
    return {}


def shutdown(desk: Desk, _client: Connection, _params: Json) -> Json:
    """End every turn, then the host."""
    desk.is_closing = True
    desk.sessions.cancel_all()
    return {}


LATER: dict[str, Callable[[Desk, Connection, Call], None]] = {"ask": ask, "complete": complete}
DEFAULT_PROFILE = "chat"
NAME_LIMIT = 60
CALLS: dict[str, Callable[[Desk, Connection, Json], Json]] = {
    "hello": hello, "open": open_session, "close": close, "keep": keep, "fork": fork,
    "list": list_sessions, "rename": rename,
    "delete": delete, "restore": restore, "subscribe": subscribe, "cancel": cancel, "rewind": rewind, "mend": mend,
    "set": set_profile, "why": why, "stats": stats, "metrics": metrics, "inspect": inspect, "unload": unload,
    "shutdown": shutdown,
}  # fmt: skip


def _text(params: Json, name: str) -> str:
    value = params[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a text")
    return value


def _settings(params: Json) -> dict[str, Any]:
    settings = params.get("overrides") or {}
    if not isinstance(settings, dict):
        raise ValueError("overrides must be an object")
    return settings


def _described(desk: Desk, session: OpenSession) -> Json:
    return {
        "session": session.thread.id,
        "name": session.thread.name,
        "profile": session.thread.profile,
        "turns": len(session.path),
        "window": desk.sessions.library.window(session.profile),
        "next": session.feed.next,
        "live": list(session.live),
        "state": desk.sessions.queue.state,
    }
