"""How many threads compute, and how they wait for each other. Imports nothing heavy.

Threads that spin for as long as they wait turn a step of 2.5 ms into one of 55 ms on a machine that has other work to
do; threads that sleep at once lose a quarter of a calm machine by waking late. So they spin for the time between two
layers, a fraction of a millisecond, and then sleep; that must be said before torch is imported. Between the passes of a
small model they would sleep, and take longer to wake than it computes: two take 6.2 ms for a pass that one does in 3.0,
so a small model is given one. A large one is watched, and computes with fewer while others want the machine, if that
helps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from statistics import median
from time import monotonic

SMALL_BYTES = 256 * 2**20  # of weights; a layer of less is done before another thread is awake
COUNT = "OMP_NUM_THREADS"
POLICY = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "20000",  # about 0.3 ms
    "KMP_BLOCKTIME": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
SLOW = 1.5  # times the quickest pass: something else wants the machine
NO_BETTER = 0.95  # of how slow it was: fewer threads have not helped
ENOUGH_PASSES = 8  # to tell a busy machine from a stall
FIRST_WAIT, LONGEST_WAIT = 30.0, 480.0  # seconds


def wait_calmly() -> None:
    """Let waiting threads sleep soon, in this process, unless its user has said otherwise."""
    for name, value in POLICY.items():
        os.environ.setdefault(name, value)


def threads_for(weights_bytes: int, usual: int) -> int:
    """How many threads should compute with so many bytes of weights, unless the user of this process has said."""
    return usual if is_said() or weights_bytes >= SMALL_BYTES else 1


def is_said() -> bool:
    """Whether the user of this process has said how many threads compute."""
    return COUNT in os.environ


class Watchdog:
    """Gives threads up on a busy machine and takes them back, whichever makes passes quicker there, as measured.

    A pass is held against the quickest one like it. When those of an answer were slow, the next answer gets half the
    threads. If that is no better they come back at once, and else after a while; each time in vain the wait is doubled.
    Rounding may hang on the number of threads, so it never changes while anybody is being answered; nor does it when
    somebody else has changed it.
    """

    def __init__(
        self, most: int, used: Callable[[], int], use: Callable[[int], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self.threads = self.most = most
        self._used, self._use, self._clock = used, use, clock
        self._quickest: dict[Hashable, float] = {}  # seconds of a pass with all threads
        self._slowness: list[float] = []  # of passes since the last decision, by the quickest
        self._before = 0.0  # how slow passes were that made threads fewer
        self._answers, self._wait, self._until = 0, FIRST_WAIT, 0.0

    @contextmanager
    def answering(self) -> Generator[None]:
        """Somebody is being answered. Before the first of those who are answered in turns, threads may change."""
        if not self._answers:
            self._decide()
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1

    def heard(self, kind: Hashable, seconds: float) -> None:
        """A pass took so long; `kind` tells those apart that do not cost the same."""
        quickest = self._quickest.get(kind)
        if self.threads == self.most:
            quickest = self._quickest[kind] = min(quickest or seconds, seconds)
        if quickest:
            self._slowness.append(seconds / quickest)

    def _decide(self) -> None:
        if len(self._slowness) < ENOUGH_PASSES or self._used() != self.threads:
            return
        now, slowness, are_fewer = self._clock(), median(self._slowness), self.threads < self.most
        self._slowness.clear()
        if are_fewer and slowness > NO_BETTER * self._before:
            self._take_back(now)
            self._until = now + self._wait
        elif are_fewer and now >= self._until:
            self._take_back(now)
        elif slowness > SLOW and self.threads > 1 and (are_fewer or now >= self._until):
            self._before, self._until = slowness, now + self._wait
            self._change(max(self.threads // 2, 1))
        elif slowness <= SLOW and not are_fewer:
            self._wait = FIRST_WAIT

    def _take_back(self, now: float) -> None:
        self._wait, self._until = min(2 * self._wait, LONGEST_WAIT), now
        self._change(self.most)

    def _change(self, threads: int) -> None:
        self.threads = threads
        self._use(threads)
