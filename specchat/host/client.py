"""A conversation with the host, as a front end sees it: ask, and hear the same events as in one process.

What can go wrong between two processes ends here: a host that must be started or replaced, a connection that was cut
because its reader was slow (what was missed is heard again), a host that was killed in the middle of an answer (what
was shown is given to the next one to keep).
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat import __version__
from specchat.chat.events import Event, Failed, Finished, Totals
from specchat.chat.fim_request import Gap
from specchat.chat.history import HistoryReader, StoredTurn
from specchat.chat.request import Request
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, InputError, UsageError
from specchat.host.event_feed import AnswerSoFar
from specchat.host.protocol import (
    LINE_BYTES,
    Answer,
    Call,
    Json,
    LineReader,
    Notice,
    Refusal,
    encode,
    events_from_json,
    new_id,
    read_replies,
    request_to_json,
    totals_from_json,
)
from specchat.host.spawn import configuration_hash, find_host, find_or_start_host
from specchat.profile import configuration_folder

LOOK_SECONDS = 0.02  # how often a waiting `ask` looks whether it was cancelled
SHORTEST_LOOK_SECONDS = 0.001
PATIENCE_SECONDS = 30.0
READ_BYTES = 2**18


class Line:
    """A connection to the host: calls out, replies in. Raises ConnectionError when the host is gone."""

    def __init__(self, peer: socket.socket, client: str) -> None:
        self._peer = peer
        self._reader = LineReader()
        self._replies: deque[Notice | Answer | Refusal] = deque()
        self._calls = 0
        self.hello = self.call("hello", {"client": client, "version": __version__})

    def call(self, method: str, params: Mapping[str, Any]) -> Json:
        """Ask for something and wait for it; what is told meanwhile is kept for `next_notice`."""
        number = self.send(method, params)
        until = time.monotonic() + PATIENCE_SECONDS
        told: list[Notice | Answer | Refusal] = []
        while True:
            reply = self.next(until - time.monotonic())
            if reply is None:
                raise HostError(f"the engine process did not answer {method!r} within {PATIENCE_SECONDS:.0f} s")
            if isinstance(reply, Notice) or reply.id != number:
                told.append(reply)
                continue
            self._replies.extendleft(reversed(told))
            if isinstance(reply, Refusal):
                raise reply.to_error()
            return reply.result

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Ask for something; the number of the call."""
        self._calls += 1
        line = encode(Call(self._calls, method, dict(params)))
        if len(line) > LINE_BYTES:
            raise InputError(
                f"this is too much at once: {len(line) / 2**20:.0f} MiB on the wire, at most 32; attach less"
            )
        self._peer.settimeout(PATIENCE_SECONDS)
        try:
            self._peer.sendall(line)
        except TimeoutError:
            raise HostError(
                f"the engine process took nothing for {PATIENCE_SECONDS:.0f} s; 'specchat host stop' ends it"
            ) from None
        return self._calls

    def next(self, seconds: float) -> Notice | Answer | Refusal | None:
        """What is told next, None when nothing is within this time."""
        until = time.monotonic() + seconds
        while not self._replies:
            self._peer.settimeout(max(SHORTEST_LOOK_SECONDS, until - time.monotonic()))
            try:
                received = self._peer.recv(READ_BYTES)
            except TimeoutError:
                return None
            if not received:
                raise ConnectionResetError("the host hung up")
            self._replies.extend(read_replies(self._reader.feed(received)))
        return self._replies.popleft()

    def close(self) -> None:
        """Hang up."""
        self._peer.close()


def connect(client: str, *, start: bool = True) -> Line | None:
    """A line to a host that speaks as we do. One that does not, and is idle, is replaced."""
    for _ in range(3):
        peer = find_or_start_host() if start else find_host()
        if peer is None:
            return None
        try:
            line = Line(peer, client)
            if not start or _is_ours(line.hello):
                return line
            line.call("shutdown", {})
            _wait_for_end(line)
        except ConnectionError:
            peer.close()
            continue  # it was just about to end
    raise HostError("the engine process ends as soon as it begins; 'specchat host status' may say why")


def _is_ours(hello: Json) -> bool:
    """Same version, same configuration? HostError when it is not and must not be replaced."""
    version = str(hello.get("version"))
    if version == __version__ and hello.get("configuration") == configuration_hash():
        return True
    if hello.get("busy"):
        what = f"is version {version}" if version != __version__ else "was started with another configuration"
        raise HostError(f"the running engine process {what} and is busy; wait for it, or 'specchat host stop'")
    if _numbers(version) > _numbers(__version__):
        raise HostError(
            f"the running engine process is newer ({version}) than this specchat; upgrade, or 'specchat host stop'"
        )
    return False


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _wait_for_end(line: Line) -> None:
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            line.next(1.0)
    except ConnectionError:
        line.close()
        return
    raise HostError("the old engine process does not end; 'specchat host stop' ends it")


@dataclass(frozen=True)
class Wish:
    """Which conversation somebody wants: a known one, the last one of this folder, or a new one."""

    session: str = ""
    is_last: bool = False
    profile: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "chat"
    folder: str = ""  # "" for the one of this process
    is_kept: bool = True  # in the history; one that is not ends with its host

    def params(self) -> Json:
        """What `open` is told."""
        folder = self.folder or str(Path.cwd())
        params: Json = {"kind": self.kind, "folder": folder, "continue": self.is_last, "kept": self.is_kept}
        if self.session:
            params["session"] = self.session
        if self.profile:
            params["profile"] = _profile_for_host(self.profile)
        if self.overrides:
            params["overrides"] = dict(self.overrides)
        return params


def _profile_for_host(name: str) -> str:
    """A profile of ours under a name that the host understands: it has another folder and another environment."""
    is_file = name.endswith(".toml") or "/" in name
    path = Path(name).expanduser() if is_file else configuration_folder() / "profiles" / f"{name}.toml"
    return str(path.absolute()) if is_file or path.is_file() else name


@dataclass(frozen=True)
class Filled:
    """What was written into a gap, and why it ended: `stop`, `lines`, `length`, `late`, `cancelled`,
    `loading`, `unable`.
    """

    text: str
    reason: str
    totals: Totals = Totals()


class Conversation(AbstractContextManager["Conversation"]):
    """One session of the host. The next ask continues where the last one ended, also after a host was replaced.

    For one thread; only the flag that cancels an answer may be set from another.
    """

    def __init__(self, wish: Wish = Wish(), client: str = "specchat") -> None:
        self.client, self._wish = client, wish
        self._line = self._connected()
        self._take(self._line.call("open", wish.params()))

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def trouble(self) -> str:
        """What the host has to complain of, in one line."""
        return str(self._line.hello.get("trouble", ""))

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time. Set `cancelled` from any thread to end within a step; the partial stays."""
        hearing = _Hearing(Request(request) if isinstance(request, str) else request, cancelled or Flag())
        self._put(hearing)
        try:
            while not hearing.is_over:
                yield from self._hear(hearing)
        finally:
            if not hearing.is_over:
                self._cancel(hearing)

    def fill(self, gap: Gap, cancelled: Flag | None = None) -> Filled:
        """Have a gap filled by the models of this session, beside what is said in it. Waits for no model to load.

        Set `cancelled` from any thread to be answered at once. HostError when the engine fails.
        """
        try:
            return self._filled(gap, cancelled or Flag())
        except ConnectionError:
            self._reopen()
        try:
            return self._filled(gap, cancelled or Flag())
        except ConnectionError as error:
            raise HostError(f"the engine process is gone: {error}") from None

    def turns(self) -> list[StoredTurn]:
        """What was said so far."""
        history = HistoryReader(Path(self._line.hello["history"]))
        try:
            thread = history.thread(self.session)
            return history.turns(thread.tip) if thread else []
        finally:
            history.close()

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """Any other method, for this session unless `params` name another."""
        try:
            return self._line.call(method, {"session": self.session, **(params or {})})
        except ConnectionError:
            self._reopen()
            return self._line.call(method, {"session": self.session, **(params or {})})

    def rewind(self, count: int = 1, told: Sequence[Exchange] = ()) -> None:
        """Take back the last turns, to ask again or otherwise. One that is not kept may go on from others instead."""
        self.call("rewind", {"count": count, "turns": [asdict(each) for each in told]})

    def fresh(self) -> Json:
        """A new session like this one, for `switch`."""
        return self._line.call("open", replace(self._wish, session="", is_last=False).params())

    def switch(self, opened: Json) -> None:
        """Go on in the session that an `open` or `fork` answered with."""
        self._take(opened)

    def close(self) -> None:
        """Hang up; the session stays in the history."""
        self._line.close()

    def _filled(self, gap: Gap, cancelled: Flag) -> Filled:
        turn = new_id()
        call = self._line.send("complete", {"session": self.session, "turn": turn, **asdict(gap)})
        while not cancelled.is_set():
            reply = self._line.next(LOOK_SECONDS)
            if isinstance(reply, Refusal) and reply.id == call:
                raise reply.to_error()
            if isinstance(reply, Answer) and reply.id == call:
                result = reply.result
                return Filled(str(result["text"]), str(result["reason"]), totals_from_json(result["totals"]))
        self._line.send("cancel", {"turn": turn})
        return Filled("", "cancelled")

    def _connected(self) -> Line:
        line = connect(self.client)
        assert line is not None
        return line

    def _take(self, opened: Json) -> None:
        self.session, self.name, self.profile = str(opened["session"]), str(opened["name"]), str(opened["profile"])
        self.window = int(opened.get("window", 0))  # tokens that the conversation may have; 0: not known yet
        self._next = int(opened["next"])

    def _reopen(self) -> None:
        self._line.close()
        self._line = self._connected()
        self._take(self._opened_again())

    def _opened_again(self) -> Json:
        """The same session; one that nothing was asked in was never stored, and is begun anew.

        HostError for one that is not kept: what was said in it is gone.
        """
        try:
            return self._line.call("open", {"session": self.session})
        except UsageError:
            if not self._wish.is_kept:
                raise HostError("the engine process has ended, and this conversation with it; ask again") from None
            return self.fresh()

    def _put(self, hearing: _Hearing) -> None:
        try:
            self._send(hearing)
        except ConnectionError:
            self._reopen()
            self._send(hearing)

    def _send(self, hearing: _Hearing) -> None:
        params = {"session": self.session, "turn": hearing.turn, "request": request_to_json(hearing.request)}
        hearing.call = self._line.send("ask", params)

    def _hear(self, hearing: _Hearing) -> Iterator[Event]:
        """The events of one look at the line."""
        try:
            if hearing.cancelled.is_set() and not hearing.is_cancelling:
                self._line.send("cancel", {"turn": hearing.turn})
                hearing.is_cancelling = True
            reply = self._line.next(LOOK_SECONDS)
        except ConnectionError:
            yield from self._come_back(hearing)
            return
        if isinstance(reply, Refusal) and reply.id == hearing.call:
            error = reply.to_error()
            yield hearing.heard(Failed.of(error))
        elif isinstance(reply, Notice):
            self._next = int(reply.params.get("number", self._next)) + 1
            if reply.params.get("turn") == hearing.turn:
                for event in events_from_json(reply.method, reply.params):
                    yield hearing.heard(event)

    def _come_back(self, hearing: _Hearing) -> Iterator[Event]:
        """Take up a cut connection where it was cut; after a killed host, save what was heard, or ask again."""
        instance = self._line.hello["instance"]
        try:
            self._line.close()
            self._line = self._connected()
            if self._line.hello["instance"] == instance:
                self._line.call("subscribe", {"session": self.session, "from": self._next})
            elif hearing.may_ask_again:
                self._ask_again(hearing)
            else:
                self._save(hearing)
                message = "the engine process was killed; what was said so far is kept, ask again"
                yield hearing.heard(Failed(message, HostError.exit_code))
        except (HostError, ConnectionError) as error:
            yield hearing.heard(Failed(f"the engine process is gone: {error}", HostError.exit_code))

    def _ask_again(self, hearing: _Hearing) -> None:
        """The host ended before it said anything: the same question, as if it had never been asked."""
        self._take(self._opened_again())
        if any(turn.id == hearing.turn for turn in self.turns()):
            self.rewind()
        hearing.turn, hearing.may_ask_again, hearing.is_cancelling = new_id(), False, False
        self._send(hearing)

    def _save(self, hearing: _Hearing) -> None:
        """Give the new host what the old one told and had not yet stored."""
        heard = hearing.so_far.answered()
        params = {
            "turn": hearing.turn, "text": heard.text, "ids": list(heard.ids), "kinds": list(heard.kinds),
            "sources": list(heard.sources), "variant": heard.variant, "seed": heard.seed,
        }  # fmt: skip
        if heard.text:
            self._line.call("mend", params)
        self._take(self._opened_again())

    def _cancel(self, hearing: _Hearing) -> None:
        """Nobody listens any more."""
        try:
            self._line.send("cancel", {"turn": hearing.turn})
        except OSError:
            pass  # then there is nothing left to cancel


@dataclass(eq=False)
class _Hearing:
    """An answer on its way."""

    request: Request
    cancelled: Flag
    turn: str = field(default_factory=new_id)
    call: int = 0
    may_ask_again: bool = True
    is_cancelling: bool = False
    is_over: bool = False
    so_far: AnswerSoFar = field(default_factory=AnswerSoFar)

    def heard(self, event: Event) -> Event:
        """Note what is passed on."""
        self.so_far.note(event)
        self.may_ask_again = False
        self.is_over = self.is_over or isinstance(event, Finished | Failed)
        return event
