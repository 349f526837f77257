"""Drift detection: whether costs that were stored by an earlier process still hold.

Running means react slowly, so that a single stall does not change them. A stored cost, however, may be wrong by a
factor, because the load, the threads or the driver have changed; a slow correction would then make decoding slower than
plain decoding. So the first measurements of a process test for a change, and one change scales the whole curve at once,
similar to bandits with change detection (CUSUM-UCB, arXiv 1711.03539; M-UCB, arXiv 1802.03692). Two consistent
measurements are enough here, because the next measurements correct a wrong change.
"""

from dataclasses import dataclass

MAX_NORMAL_RATIO = 1.25  # measurements of one process mostly differ by less than this factor
DRIFT_TEST_MEASUREMENTS = 16  # first measurements that are tested


@dataclass
class DriftDetector:
    """Tests the first measurements against a stored cost. The test ends with the first measurement that agrees."""

    measurements_left: int = DRIFT_TEST_MEASUREMENTS
    is_unconfirmed: bool = True  # no measurement of this process has confirmed or replaced the cost yet
    is_new: bool = False  # there is no stored cost: the first measurement may be too slow (warm-up)
    _previous_ratio: float = 1.0  # last measurement by the expected value, if that was outside MAX_NORMAL_RATIO

    def scale_factor(self, seconds: float, expected: float) -> float | None:
        """The factor by which to scale the expected cost after this measurement; None for no change.

        Two measurements in a row that are too slow, or too fast, give the smaller of both changes. A new cost is scaled
        by the first measurement that is too fast, and never by one that is too slow.
        """
        if not self.measurements_left:
            return None
        self.measurements_left -= 1
        self.is_unconfirmed = self.is_unconfirmed and self.measurements_left > 0
        previous, ratio = self._previous_ratio, seconds / expected
        self._previous_ratio = 1.0
        if 1 / MAX_NORMAL_RATIO <= ratio <= MAX_NORMAL_RATIO:
            self.is_unconfirmed, self.measurements_left = False, self.measurements_left if self.is_new else 0
            return None
        if self.is_new:
            return ratio if ratio < 1 else None
        if (previous - 1) * (ratio - 1) <= 0:
            self._previous_ratio = ratio
            return None
        self.is_unconfirmed = False
        return min(ratio, previous) if ratio > 1 else max(ratio, previous)


def confirmed_detector() -> DriftDetector:
    """A detector whose test is over: the cost changes only slowly."""
    return DriftDetector(measurements_left=0, is_unconfirmed=False)
