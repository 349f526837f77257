"""The client side of the host: conversations that survive a restart of the host.

A `Conversation` yields the same events as an engine in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event as Flag

from specchat.chat.events import Event, Failed
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import UsageError, error_with_exit_code
from specchat.history.history_reader import CHAT, HistoryReader, StoredTurn
from specchat.host.host_connection import HostConnection, connect
from specchat.host.host_session import HostSession, SessionRequest
from specchat.host.pending_answer import PendingAnswer

__all__ = ["Conversation", "HostConnection", "SessionRequest", "connect"]


class Conversation(HostSession):
    """A session in which each `ask` continues the conversation, also after the host was replaced."""

    def ask(
        self, request: Request | str, cancelled: Flag | None = None, turns: Sequence[Turn] | None = None
    ) -> Iterator[Event]:
        """Yield the events of an answer. Setting `cancelled` ends it within a step and keeps the partial answer.

        A caller that keeps the turns itself gives them with each question, in a session that is not stored.
        """
        request = Request(request) if isinstance(request, str) else request
        pending = PendingAnswer(self, request, cancelled or Flag())
        self.unsent_turns = list(turns) if turns is not None else self.unsent_turns
        yield from pending.events()
        if not self.is_stored and turns is None:
            self.private_turns.add(pending.to_turn(request))

    def fill(self, gap: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Yield the events of a completion, with the models of this session. It never waits for a model to load.

        Setting `cancelled` ends it at once. SpecchatError when the engine fails. The conversation does not change. The
        last event is Finished: stop, lines, block, inside_line, length, timeout, cancelled, model_loading. Its
        `explanation` says what the user should know about completions of this model, or what it waits for if it cannot
        be loaded yet.
        """
        for event in PendingAnswer(self, gap, cancelled).events():
            if isinstance(event, Failed):
                raise error_with_exit_code(event.message, event.exit_code)
            yield event

    def versions(self) -> dict[str, tuple[str, ...]]:
        """For each shown turn the ids of its versions, itself among them, the oldest first."""
        return self.read_history(HistoryReader.versions, {}) if self.is_stored else self.private_turns.versions()

    def all_turns(self) -> list[StoredTurn]:
        """The turns of all branches; each version is followed by what was asked after it."""
        return self.read_history(HistoryReader.all_turns, []) if self.is_stored else self.private_turns.all_turns()

    def select_version(self, position: int, number: int) -> None:
        """Continue with another version of the turn at this position; numbers count from 1."""
        turn = self.turns()[position].id
        versions = self.versions().get(turn, (turn,))
        if not 1 <= number <= len(versions):
            raise UsageError(f"there is no version {number} of this answer; it has {len(versions)}")
        if self.is_stored:
            self.call("select_version", {"turn": versions[number - 1]})
            return
        self.private_turns.select(versions[number - 1])
        self.unsent_turns = self.private_turns.read()

    def rewind(self, count: int = 1) -> None:
        """Remove the last turns; in a chat they stay as a version."""
        if self.unsent_turns is None:
            self.call("rewind", {"count": count})
        go_back = self.private_turns.rewind if self.kind == CHAT else self.private_turns.forget
        go_back(count)
        if self.unsent_turns is not None:
            self.unsent_turns = self.private_turns.read()

    def open_beside(self) -> Conversation:
        """An empty conversation with the settings of this one, which is not stored; close it after its use."""
        return Conversation(SessionRequest(settings=self.settings, is_stored=False), self.client_name)
