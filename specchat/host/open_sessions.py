"""The sessions in memory: their settings and turns, and what the history stores of them.

Runs on the I/O thread; `TurnQueue` passes the turns to the engine thread. Knows no torch and no sockets.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.tools import ANY_TOOL
from specchat.chat.transcript import TextOwner, Turn
from specchat.errors import UsageError
from specchat.history.history_reader import Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host.answer_delivery import AnswerDelivery, LiveAnswer, OpenSession
from specchat.host.connection import ClientConnection
from specchat.host.protocol import new_id, request_to_json
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import QueuedCompletion, QueuedTurn
from specchat.host.session_turns import SessionTurns, turn_of_stored
from specchat.paths import remove_kv_files
from specchat.profile.settings import Settings

MAX_IDLE_SESSIONS = 16
MAX_NAME_CHARS = 60


class OpenSessions:
    """All sessions in memory; `delivery` has their answers."""

    def __init__(self, history: HistoryWriter, queue: TurnQueue) -> None:
        self.history, self.queue = history, queue
        self.by_id: dict[str, OpenSession] = {}
        self.delivery = AnswerDelivery(self.by_id, history, queue)

    def find(self, session_id: str, settings: Settings | None = None) -> OpenSession:
        """A session by its id, from now on with these settings, if any."""
        thread = self.thread(session_id)
        session = self.by_id.get(thread.id)
        if session is None:
            return self.load_thread(thread, settings)
        if settings is not None:
            self.use(session, settings)
        return session

    def thread(self, session_id: str) -> Thread:
        """The thread of a session, in memory or not; UsageError when there is none."""
        thread = self.by_id[session_id].thread if session_id in self.by_id else self.history.thread(session_id)
        if thread is None:
            raise UsageError(f"there is no session {session_id!r}; 'specchat sessions list' lists them")
        return thread

    def use(self, session: OpenSession, settings: Settings) -> None:
        """Take the settings of the next turns from the client, store them, and start loading the models."""
        if settings == session.settings:
            return
        session.settings = settings
        if session.are_settings_stored:
            self.history.store_settings(session.thread.id, settings.to_json())
        self.update_thread(replace(session.thread, profile=settings.name))
        self.queue.models.request_preload(settings.profile)

    def update_thread(self, thread: Thread) -> None:
        self.history.update_thread(thread)
        if thread.id in self.by_id:
            self.by_id[thread.id].thread = thread

    def queue_turn(self, session: OpenSession, turn_id: str, request: Request, owner: ClientConnection | None) -> None:
        self.delivery.check_is_new(turn_id)
        request.check_size(self.queue.models.context_window(session.profile))
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(request.text))
        if session.is_stored:
            self._store_question(session, turn_id, request)
        session.turns.add(turn_id)
        session.thread = replace(session.thread, tip=turn_id)
        turn = QueuedTurn(turn_id, session.thread.id, request, session.profile, session.turns)
        self.delivery.start(turn, LiveAnswer(owner, session))

    def queue_completion(
        self, session: OpenSession, completion_id: str, fim_request: FimRequest, owner: ClientConnection
    ) -> None:
        """Queue a completion, and cancel earlier completions of the same client."""
        self.delivery.check_is_new(completion_id)
        self.delivery.cancel_completions(owner)
        live = LiveAnswer(owner, session, is_completion=True)
        self.delivery.start(QueuedCompletion(completion_id, fim_request, session.profile), live)

    def rewind(self, session: OpenSession, count: int) -> None:
        """Remove the last turns; the history keeps them as a branch."""
        self.delivery.check_is_idle(session)
        session.turns.remove_last(count)
        self.update_thread(replace(session.thread, tip=session.turns.last_id))

    def replace_turns(self, session: OpenSession, turns: Sequence[Turn]) -> None:
        """Go on after other turns, which the client has; only in a session that is not stored."""
        self.delivery.check_is_idle(session)
        if session.is_stored:
            raise UsageError("only a conversation that is not stored can continue from other turns")
        session.turns.replace((new_id(), turn) for turn in turns)

    def select_version(self, session: OpenSession, turn_id: str) -> None:
        """Show another version of one of the turns, with what was asked after it; the next question continues there."""
        self.delivery.check_is_idle(session)
        if not any(turn_id in versions for versions in self.history.versions(session.thread).values()):
            raise UsageError(f"turn {turn_id} is no version of a turn of this conversation")
        tip = self.history.newest_after(turn_id, session.thread.id)
        session.turns.replace(self._stored_turns(tip))
        self.update_thread(replace(session.thread, tip=tip))

    def delete(self, thread: Thread) -> None:
        """Mark a session as deleted, which removes it from the lists; nothing that was computed for it stays."""
        self.update_thread(replace(thread, deleted=time.time()))
        if session := self.by_id.get(thread.id):
            session.turns.owner = TextOwner(thread.id)
        self.queue.models.forget_texts(thread.id)
        remove_kv_files(thread.id)

    def store(self, session: OpenSession, name: str) -> None:
        """Store a session without turns, with this name if it has none."""
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(name))
        self._store_settings(session)
        self.history.add_thread(session.thread)

    def fork(self, source: Thread, turn_id: str | None) -> OpenSession:
        """Open a copy of a session, up to this turn or up to its last one."""
        if source.id in self.by_id and not self.by_id[source.id].is_stored:
            raise UsageError("this conversation is not stored, so it cannot be forked")
        turns = [stored.id for stored in self.history.turns(source.tip)]
        if turn_id is not None and turn_id not in turns:
            raise UsageError(f"there is no turn {turn_id} in session {source.id}")
        tip = turn_id or source.tip
        forked = replace(source, id=new_id(), tip=tip, forked_from=source.id, created=0.0, deleted=None)
        self.history.store_settings(forked.id, self.history.settings(source.id))
        self.history.add_thread(forked)
        return self.load_thread(forked)

    def _store_question(self, session: OpenSession, turn_id: str, request: Request) -> None:
        self._store_settings(session)
        # Tools are named with every request, and are not read again: they would be most of the file.
        stored = replace(request, tools=(), tool_choice=ANY_TOOL, compacts=False)
        self.history.start_turn(session.thread, turn_id, session.turns.last_id, request_to_json(stored))

    def _store_settings(self, session: OpenSession) -> None:
        if not session.are_settings_stored:
            self.history.store_settings(session.thread.id, session.settings.to_json())
            session.are_settings_stored = True

    def load_thread(
        self,
        thread: Thread,
        settings_of_client: Settings | None = None,
        *,
        is_stored: bool = True,
        text_scope: str = "",
    ) -> OpenSession:
        """Load a thread into memory, and drop idle sessions. A new thread is stored with its first question.

        Sessions that are not stored share what was computed for them within a scope, by default each has its own.
        """
        stored = self.history.settings(thread.id)
        settings = settings_of_client or Settings.from_json({"name": thread.profile, **stored})
        thread = replace(thread, profile=settings.name)
        if stored and settings_of_client:
            self.history.store_settings(thread.id, settings.to_json())
        owner = TextOwner(text_scope or thread.id, is_private=not is_stored)
        turns = SessionTurns(owner, self._stored_turns(thread.tip))
        self.queue.models.request_preload(settings.profile)
        session = OpenSession(thread, turns, settings, is_stored, bool(stored))
        self.by_id[thread.id] = session
        self._drop_idle_sessions(session)
        return session

    def _stored_turns(self, tip: str | None) -> list[tuple[str, Turn | None]]:
        return [(stored.id, turn_of_stored(stored)) for stored in self.history.turns(tip)]

    def _drop_idle_sessions(self, newest: OpenSession) -> None:
        """Drop sessions without clients and turns: all that are not stored, and the oldest stored ones."""
        others = [each for each in self.by_id.values() if each is not newest]
        idle = [each for each in others if not each.clients and not self.delivery.has_turn(each)]
        for session in idle:
            if not session.is_stored or session in idle[:-MAX_IDLE_SESSIONS]:
                del self.by_id[session.thread.id]
                self._forget_texts(session.turns.owner)

    def _forget_texts(self, owner: TextOwner) -> None:
        """Keep nothing that was computed for a private session, once no session has this owner."""
        if owner.is_private and all(session.turns.owner != owner for session in self.by_id.values()):
            self.queue.models.forget_texts(owner.name)


def short_name(text: str) -> str:
    line = " ".join(text.lstrip()[: 2 * MAX_NAME_CHARS].split())
    return line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1].rstrip() + "…"
