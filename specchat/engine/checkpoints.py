"""The lengths of a text to which a network with states can go back, and which of them are dropped. Knows no network."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from specchat.engine.cache_sizes import CHECKPOINT_TOKENS

MIN_TURN_TOKENS = 32  # a turn that is shorter is read again rather than stored


class Checkpoint(Protocol):
    @property
    def length(self) -> int: ...
    @property
    def bytes(self) -> int: ...


C = TypeVar("C", bound=Checkpoint)


class Checkpoints(Generic[C]):
    """The snapshots of one text, by length, oldest first."""

    def __init__(self) -> None:
        self._snapshots: list[C] = []
        self.bytes = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(each.length for each in self._snapshots)

    @property
    def last_length(self) -> int:
        return self._snapshots[-1].length if self._snapshots else 0

    def add(self, snapshot: C) -> None:
        assert snapshot.length > self.last_length
        self._snapshots.append(snapshot)
        self.bytes += snapshot.bytes

    def newest(self, count: int, max_length: int) -> list[C]:
        """At most so many of the last snapshots up to a length, oldest first."""
        return [each for each in self._snapshots if each.length <= max_length][-count:]

    def go_back(self, length: int) -> C | None:
        """The snapshot of this length, without the later ones, whose text is gone; None for the empty text."""
        while self.last_length > length:
            self.bytes -= self._snapshots.pop().bytes
        assert self.last_length == length, "a rollback between two checkpoints"
        return self._snapshots[-1] if self._snapshots else None

    def thin_out(self) -> None:
        """Drop the snapshot without which the fewest tokens are read again; the older one of two."""
        lengths = (0, *self.lengths, self.last_length + CHECKPOINT_TOKENS)
        gaps = [after - before for before, after in zip(lengths, lengths[2:], strict=False)]
        self.bytes -= self._snapshots.pop(gaps.index(min(gaps))).bytes


def keep_within(budget_bytes: int, all_checkpoints: Sequence[Checkpoints[Any]]) -> None:
    """Drop snapshots until those of all texts fit; the text that was used longest ago stands first and goes first."""
    for each in all_checkpoints:
        while each.bytes and sum(checkpoints.bytes for checkpoints in all_checkpoints) > budget_bytes:
            each.thin_out()
