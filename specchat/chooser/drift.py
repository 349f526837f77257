"""Whether a price of another day still holds: believed until two measurements of today speak against it.

Running means answer slowly, and rightly so: a stall is no news. But a price from a file may be wrong by a factor, for
the load, the threads or the driver have changed; coming nearer by a few percent a step costs what law 3 forbids.
So the first measurements of a day test for a change, and everything is scaled at once where there was one, as bandits
restart in a world that changes at times (CUSUM-UCB, arXiv 1711.03539; M-UCB, arXiv 1802.03692). Those wait until they
are sure. Here two of a kind are enough: a wrong jump costs little, for what is measured next mends it.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_NORMAL_RATIO = 1.25  # what is measured on one day mostly differs by less than this factor
DRIFT_TEST_MEASUREMENTS = 16  # measurements that may overthrow


@dataclass
class DriftDetector:
    """What speaks against a price. It ends with the first measurement that agrees."""

    measurements_left: int = DRIFT_TEST_MEASUREMENTS
    is_unconfirmed: bool = True  # nothing of today has confirmed or replaced it yet
    is_new: bool = False  # there is no other day: the first time may just have been slow, for being the first
    _previous_ratio: float = 1.0  # the last measurement by what was expected, if that was outside the spread

    def scale_factor(self, seconds: float, expected: float) -> float | None:
        """By how much what was expected is to be multiplied at once, after this measurement; None when it stands.

        Twice in a row too slow, or twice too quick: the milder of both. Of what is new only the quicker is believed,
        and that at once.
        """
        if not self.measurements_left:
            return None
        self.measurements_left -= 1
        self.is_unconfirmed = self.is_unconfirmed and self.measurements_left > 0
        before, ratio = self._previous_ratio, seconds / expected
        self._previous_ratio = 1.0
        if 1 / MAX_NORMAL_RATIO <= ratio <= MAX_NORMAL_RATIO:
            self.is_unconfirmed, self.measurements_left = False, self.measurements_left if self.is_new else 0
            return None
        if self.is_new:
            return ratio if ratio < 1 else None
        if (before - 1) * (ratio - 1) <= 0:
            self._previous_ratio = ratio
            return None
        self.is_unconfirmed = False
        return min(ratio, before) if ratio > 1 else max(ratio, before)


def confirmed_detector() -> DriftDetector:
    """None: what is believed changes slowly."""
    return DriftDetector(measurements_left=0, is_unconfirmed=False)
