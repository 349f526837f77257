"""Which waiting turns start: in the order of their arrival, as far as their engines have room.

A turn whose engine finds no room beside the busy ones is overtaken by a few turns for those and no more, so that they
become free.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.chat.events import Notice
from specchat.host.engine_loading import ModelLoading
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.queued_work import QueuedSession, QueuedTurn, TurnEvent

MAX_OVERTAKING_TURNS = 4  # that start before an earlier one, which waits for the memory of another engine


@dataclass(eq=False)
class BlockedTurn:
    """The first turn that waits for the memory of a busy engine, why, and how many later turns have started since."""

    turn: QueuedTurn
    missing: str
    overtaking_turns: int = 0


class TurnAdmission:
    def __init__(self, models: ModelLoading, emit: Callable[[TurnEvent], None]) -> None:
        self.blocked: BlockedTurn | None = None
        self._models, self._emit = models, emit

    def start(
        self,
        waiting: Sequence[QueuedSession],
        busy: Callable[[], list[LoadedEngine]],
        start_turn: Callable[[QueuedSession, LoadedEngine], None],
    ) -> None:
        """Start the first turns of these sessions, which stand in the order of arrival."""
        blocked, self.blocked = self.blocked, None
        for session in waiting:
            if self._models.stop_requested.is_set():
                return
            loaded = self._models.engines.find(session.profile)
            if loaded is None and self.blocked is None:
                loaded = self._load_or_block(session, blocked, busy())
            if loaded is not None and loaded.has_free_slot(busy()) and self._may_overtake():
                start_turn(session, loaded)

    def _load_or_block(
        self, session: QueuedSession, blocked: BlockedTurn | None, busy: Sequence[LoadedEngine]
    ) -> LoadedEngine | None:
        """Load the engine of a session; where busy engines leave no room, block its turn and say why."""
        turn = next(iter(session.waiting_turns), None)
        room = self._models.find_room(session.profile, busy) if turn else None
        if turn is None or room is None:
            return None
        if not room.missing:
            return self._models.load(session.profile, room.to_close)
        if blocked is None or blocked.turn is not turn:
            blocked = BlockedTurn(turn, room.missing)
            self._emit(TurnEvent(turn.session_id, turn.id, Notice(room.missing)))
        self.blocked = blocked
        return None

    def _may_overtake(self) -> bool:
        """Whether a turn may start now, although an earlier one waits for memory. Counts it if so."""
        if self.blocked is None:
            return True
        self.blocked.overtaking_turns += 1
        return self.blocked.overtaking_turns <= MAX_OVERTAKING_TURNS
