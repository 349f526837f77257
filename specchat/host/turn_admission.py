"""Which waiting turns start: in the order of their arrival, as far as their engines have room.

A turn whose engine finds no room beside the busy ones is overtaken by a few turns for those and no more, so that they
become free.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.chat.events import Notice
from specchat.host.engine_loading import ModelLoading
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.queued_work import QueuedTurn, TurnEvent

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
        first_turns: Sequence[QueuedTurn],
        is_waiting: Callable[[QueuedTurn], bool],
        busy: Callable[[], list[LoadedEngine]],
        start_turn: Callable[[QueuedTurn, LoadedEngine], None],
    ) -> None:
        """Start these turns, each the first one of its session, which stand in the order of arrival."""
        blocked, self.blocked = self.blocked, None
        for turn in first_turns:
            if self._models.stop_requested.is_set():
                return
            loaded = self._models.engines.find(turn.profile)
            if loaded is None and self.blocked is None and is_waiting(turn):
                loaded = self._load_or_block(turn, blocked, busy())
            if loaded is not None and loaded.has_free_slot(busy()) and self._may_overtake():
                start_turn(turn, loaded)

    def _load_or_block(
        self, turn: QueuedTurn, blocked: BlockedTurn | None, busy: Sequence[LoadedEngine]
    ) -> LoadedEngine | None:
        """Load the engine of a turn; where busy engines leave no room, block the turn and say why."""
        room = self._models.find_room(turn.profile, busy)
        if room is None:
            return None
        if not room.missing:
            return self._models.load(turn.profile, room.to_close)
        if blocked is None or blocked.turn is not turn:
            blocked = BlockedTurn(turn, room.missing)
            self._emit(TurnEvent(turn.id, Notice(room.missing)))
        self.blocked = blocked
        return None

    def _may_overtake(self) -> bool:
        """Whether a turn may start now, although an earlier one waits for memory. Counts it if so."""
        if self.blocked is None:
            return True
        self.blocked.overtaking_turns += 1
        return self.blocked.overtaking_turns <= MAX_OVERTAKING_TURNS
