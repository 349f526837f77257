"""How often draft tokens are accepted, as counts that add up. Knows no drafter, no model and no event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

SHOWN_DEPTHS = 4  # of draft tokens


@dataclass(frozen=True)
class Acceptance:
    """Counts by depth in the draft; the first are of draft tokens directly after the text.

    A draft token is tested where its parent was accepted, so the rate is the conditional one of the papers (a in
    Leviathan et al., arXiv 2211.17192); of siblings, which are tested together, one may be accepted.
    """

    tested: Sequence[int] = ()
    accepted: Sequence[int] = ()

    @classmethod
    def of_step(cls, tested: int, accepted: int) -> Acceptance:
        return cls((1,) * tested, (1,) * accepted)

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(_added(self.tested, other.tested), _added(self.accepted, other.accepted))

    @property
    def rate(self) -> float | None:
        """Accepted by tested draft tokens; None without any."""
        return sum(self.accepted) / sum(self.tested) if any(self.tested) else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate at each depth."""
        return tuple(a / t for t, a in zip_longest(self.tested, self.accepted, fillvalue=0) if t)

    @property
    def by_depth(self) -> str:
        """The first rates, for people: "80% 71% 65%"."""
        return " ".join(f"{each:.0%}" for each in self.rates[:SHOWN_DEPTHS])


def _added(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(one, other, fillvalue=0)))
