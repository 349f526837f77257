"""The sessions that clients have open: their threads, their turns, and what they tell.

Lives on the text thread together with JSON and SQLite; the engine thread is behind `queue`. No torch and no sockets:
whoever listens is a `Connection` to hang feeds on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specchat.chat.events import Failed, Finished, Routed, StepDone, Text
from specchat.chat.fim_request import Gap
from specchat.chat.history import Answered, StoredTurn, Thread
from specchat.chat.request import Request
from specchat.chat.step_encoding import Recording
from specchat.chat.transcript import Exchange
from specchat.errors import UsageError
from specchat.host.connection import Connection
from specchat.host.event_feed import AnswerSoFar, Feed, Merger
from specchat.host.history_writer import HistoryWriter, Partial
from specchat.host.protocol import (
    NAMES,
    REFUSED,
    Answer,
    Id,
    Json,
    Notice,
    Refusal,
    encode,
    event_to_json,
    new_id,
    request_to_json,
)
from specchat.host.queue import Happened, QueuedGap, QueuedTurn, TurnQueue

GRACE_SECONDS = 30.0
IDLE_SESSIONS = 16
NAME_LENGTH = 60


@dataclass(frozen=True)
class Library:
    """How a name and settings become a profile, and a stored turn what the engine goes on from (None: it cannot).

    A conversation keeps its profile as it was: `pack` makes a JSON object of it, `unpack` a profile again, or None when
    that object is of a time that knew other keys. `window` is how many tokens a conversation of a profile may have, 0
    when that cannot be known before the model is loaded.
    """

    profile: Callable[[str, dict[str, Any]], Any]
    restore: Callable[[StoredTurn], Any]
    pack: Callable[[Any], Json] = lambda _profile: {}
    unpack: Callable[[Json, dict[str, Any]], Any] = lambda _packed, _overrides: None
    window: Callable[[Any], int] = lambda _profile: 0


@dataclass(eq=False)
class LiveTurn:
    """A turn that waits or runs. Its owner is answered in the end; without one it is on borrowed time."""

    owner: Connection | None
    call: Id
    merger: Merger = field(default_factory=Merger)
    answer: AnswerSoFar = field(default_factory=AnswerSoFar)
    steps: Recording = field(default_factory=Recording)
    left: float | None = None  # when the owner was cut off

    def partial(self) -> Partial:
        """What there is of it now, to be stored."""
        return Partial(self.answer.answered(), self.steps.packed())


@dataclass(eq=False)
class LiveGap:
    """A gap that waits or is being filled, and for whom. Nothing of it is stored."""

    owner: Connection
    call: Id
    text: list[str] = field(default_factory=list)


@dataclass(eq=False)
class OpenSession:
    """A session in memory. `path` holds its turns in order: their ids, and whether the engine keeps them.

    One that is not kept is never written to the history, and is gone when nobody hears it.
    """

    thread: Thread
    feed: Feed
    path: dict[str, bool]
    profile: Any
    is_kept: bool = True
    is_profile_kept: bool = False
    live: dict[str, LiveTurn] = field(default_factory=dict)
    routed: Routed | None = None

    @property
    def tip(self) -> str | None:
        """The last turn."""
        return next(reversed(self.path), None)


class Sessions:
    """Every session that is open, and the events on their way to whoever listens."""

    def __init__(self, library: Library, history: HistoryWriter, queue: TurnQueue) -> None:
        self.library, self.history, self.queue = library, history, queue
        self.open: dict[str, OpenSession] = {}
        self.gaps: dict[str, LiveGap] = {}
        self.used = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Does anybody wait for an answer?"""
        return bool(self.gaps) or any(session.live for session in self.open.values())

    def find(self, id: str) -> OpenSession:
        """A session by its id, from memory or from the history."""
        thread = self.thread(id)
        return self.open.get(thread.id) or self.enter(thread)

    def thread(self, id: str) -> Thread:
        """The thread of a session, also when nobody has it open."""
        thread = self.open[id].thread if id in self.open else self.history.thread(id)
        if thread is None:
            raise UsageError(f"there is no session {id!r}; 'specchat sessions list' lists them")
        return thread

    def configure(self, session: OpenSession, profile: str | None, overrides: dict[str, Any]) -> None:
        """Answer with this profile from now on (None: the one so far, as it was then), and begin to load it."""
        old = session.thread
        thread = replace(old, profile=profile or old.profile, settings={**old.settings, **overrides})
        chosen = self.library.profile(profile, thread.settings) if profile else self._as_kept(thread, overrides)
        if thread != session.thread:
            self.change(thread)
        session.profile, session.is_profile_kept = chosen, session.is_profile_kept and chosen == session.profile
        self.queue.open(thread.id, chosen, [])

    def change(self, thread: Thread) -> None:
        """Store what changed of a thread."""
        self.history.update(thread)
        if thread.id in self.open:
            self.open[thread.id].thread = thread

    def ask(self, session: OpenSession, id: str, request: Request, live: LiveTurn) -> None:
        """Store a question and queue it."""
        if id in session.path:
            raise UsageError(f"there is a turn {id} already")
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(request.text))
        if session.is_kept:
            self._store_question(session, id, request)
        session.path[id] = False
        session.thread = replace(session.thread, tip=id)
        session.live[id] = live
        self.used = time.monotonic()
        self.queue.put(QueuedTurn(id, session.thread.id, request))

    def fill(self, session: OpenSession, id: str, gap: Gap, live: LiveGap) -> None:
        """Have a gap filled with the models of a session; a newer wish of the same client takes the place of older."""
        for older, each in self.gaps.items():
            if each.owner is live.owner:
                self.queue.cancel(older)
        self.gaps[id] = live
        self.used = time.monotonic()
        self.queue.fill(QueuedGap(id, session.thread.id, gap))

    def rewind(self, session: OpenSession, count: int, told: Sequence[Exchange] = ()) -> None:
        """Go back behind the last turns; they stay in the history as a branch.

        A session that is not kept goes on from what was said elsewhere, if it is told of it.
        """
        if session.live:
            raise UsageError("an answer is being written; stop it first")
        if told and session.is_kept:
            raise UsageError("what was said elsewhere can be told only to a conversation that is not kept")
        turns = [self.library.restore(_as_stored(each)) for each in told]
        dropped = [session.path.popitem() for _ in range(min(count, len(session.path)))]
        session.path |= {new_id(): True for _ in turns}
        self.queue.rewind(session.thread.id, sum(is_kept for _, is_kept in dropped), turns)
        self.change(replace(session.thread, tip=session.tip))

    def keep(self, session: OpenSession, name: str) -> None:
        """Store a session in which nothing was asked yet, under this name if it has none."""
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(name))
        self.history.add(session.thread)

    def fork(self, source: Thread, turn: str | None) -> OpenSession:
        """A session of its own that begins with the turns up to this one."""
        if source.id in self.open and not self.open[source.id].is_kept:
            raise UsageError("this conversation is not kept, so it cannot be gone on with elsewhere")
        turns = [stored.id for stored in self.history.turns(source.tip)]
        if turn is not None and turn not in turns:
            raise UsageError(f"there is no turn {turn} in session {source.id}")
        tip = turn or source.tip
        forked = replace(source, id=new_id(), tip=tip, forked_from=source.id, created=0.0, deleted=None)
        self.history.keep_profile(forked.id, self.history.kept_profile(source.id))
        self.history.add(forked)
        return self.enter(forked)

    def cancel_all(self) -> None:
        """End every turn."""
        for id in [*self.gaps, *(id for session in self.open.values() for id in session.live)]:
            self.queue.cancel(id)

    def abandon(self, client: Connection, *, was_slow: bool) -> None:
        """End the turns of a client that left; those of one that was only slow wait for it to come back."""
        for id in [id for id, gap in self.gaps.items() if gap.owner is client]:
            self.queue.cancel(id)
            del self.gaps[id]
        for session in self.open.values():
            for id, turn in session.live.items():
                if turn.owner is not client:
                    continue
                turn.owner = None
                if was_slow:
                    turn.left = time.monotonic()
                else:
                    self.queue.cancel(id)

    def adopt(self, session: OpenSession, client: Connection) -> None:
        """A client came back: turns without an owner are its own again."""
        for turn in session.live.values():
            if turn.owner is None:
                turn.owner, turn.left = client, None

    def tell(self, happened: Happened, now: float) -> None:
        """Pass on an event of the engine thread."""
        if gap := self.gaps.get(happened.turn or ""):
            self._tell_gap(gap, happened)
            return
        session = self.open.get(happened.session)
        if session is None:
            return
        self.used = now
        turn = session.live.get(happened.turn or "")
        if turn is None or happened.turn is None:
            session.feed.tell(None, Notice(NAMES[type(happened.event)], event_to_json(happened.event)))
            return
        turn.answer.note(happened.event)
        if isinstance(happened.event, StepDone):
            turn.steps.add(happened.event)
        if isinstance(happened.event, Routed):
            session.routed = happened.event
        if session.is_kept:
            self._store(turn, happened)
        for notice in turn.merger.add(happened.event, now):
            session.feed.tell(happened.turn, notice)
        if isinstance(happened.event, Finished | Failed):
            session.path[happened.turn] = happened.kept is not None
            del session.live[happened.turn]
            if turn.call is not None and turn.owner is not None:
                session.feed.append(encode(_reply(turn.call, happened)), only=turn.owner)

    def _tell_gap(self, gap: LiveGap, happened: Happened) -> None:
        """Keep what is written into a gap; its client hears all of it in the end."""
        assert happened.turn is not None
        match happened.event:
            case Text(text=text):
                gap.text.append(text)
            case Finished() | Failed():
                del self.gaps[happened.turn]
                reply = _reply(gap.call, happened)
                if isinstance(reply, Answer):
                    reply.result["text"] = "".join(gap.text)
                gap.owner.say(reply)
            case _:
                pass

    def tick(self, now: float) -> None:
        """Do what is due."""
        for session in self.open.values():
            for id, turn in list(session.live.items()):
                for notice in turn.merger.take(now):
                    session.feed.tell(id, notice)
                if turn.left is not None and now - turn.left > GRACE_SECONDS:
                    self.queue.cancel(id)
        if self.history.flush_due() == 0.0:
            self.history.flush()

    def due(self, now: float) -> float | None:
        """When `tick` should be called, None when nothing waits."""
        turns = [turn for session in self.open.values() for turn in session.live.values()]
        times = [due for turn in turns if (due := turn.merger.due()) is not None]
        times += [turn.left + GRACE_SECONDS for turn in turns if turn.left is not None]
        if (flush := self.history.flush_due()) is not None:
            times.append(now + flush)
        return min(times, default=None)

    def _store_question(self, session: OpenSession, id: str, request: Request) -> None:
        if not session.is_profile_kept:
            self.history.keep_profile(session.thread.id, self.library.pack(session.profile))
            session.is_profile_kept = True
        self.history.begin(session.thread, id, session.tip, request_to_json(request))

    def _store(self, turn: LiveTurn, happened: Happened) -> None:
        """What there is of an answer now."""
        assert happened.turn is not None
        if not isinstance(happened.event, Finished | Failed):
            self.history.progress(happened.turn, turn.partial)
            return
        answered, kept, steps = turn.answer.answered(), happened.kept, turn.steps.packed()
        if kept is not None:
            answered = replace(answered, ids=kept.answer_ids, prompt_ids=kept.prompt_ids, rendered=kept.rendered)
        match happened.event:
            case Finished(reason=reason, totals=totals):
                self.history.finish(happened.turn, answered, reason, asdict(totals), steps)
            case Failed(message=message):
                self.history.finish(happened.turn, answered, "failed", {"message": message}, steps)

    def enter(self, thread: Thread, *, is_kept: bool = True) -> OpenSession:
        """Take a thread into memory, and let go of those that nobody hears. A new one is stored with its question."""
        profile = self._as_kept(thread, {})
        turns = [(stored.id, self.library.restore(stored)) for stored in self.history.turns(thread.tip)]
        self.queue.open(thread.id, profile, [turn for _, turn in turns if turn is not None])
        session = OpenSession(thread, Feed(thread.id), {id: turn is not None for id, turn in turns}, profile, is_kept)
        self.open[thread.id] = session
        idle = [
            id for id, each in self.open.items() if not each.feed.listeners and not each.live and each is not session
        ]
        for id in {*idle[:-IDLE_SESSIONS], *(id for id in idle if not self.open[id].is_kept)}:
            del self.open[id]
            self.queue.forget(id)
        return session

    def _as_kept(self, thread: Thread, overrides: dict[str, Any]) -> Any:
        """The profile of a conversation as it was when it was last asked, whatever its file says today."""
        packed = self.history.kept_profile(thread.id)
        kept = self.library.unpack(packed, overrides) if packed else None
        return self.library.profile(thread.profile, thread.settings) if kept is None else kept


def _as_stored(told: Exchange) -> StoredTurn:
    """A turn that was made elsewhere, as if it came from the history."""
    return StoredTurn("", None, {"text": told.user}, Answered(told.answer), "stop", {}, 0.0, None)


def short_name(text: str) -> str:
    """The first words of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= NAME_LENGTH else line[: NAME_LENGTH - 1].rstrip() + "…"


def _reply(call: Id, happened: Happened) -> Answer | Refusal:
    """The answer that an `ask` gets in the end."""
    if isinstance(happened.event, Failed):
        return Refusal(call, REFUSED, happened.event.message)
    result: Json = {"turn": happened.turn, **event_to_json(happened.event)}
    return Answer(call, result)
