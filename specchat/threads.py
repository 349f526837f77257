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

SMALL_MODEL_BYTES = 256 * 2**20  # of weights; a layer of less is done before another thread is awake
THREADS_VARIABLE = "OMP_NUM_THREADS"
WAIT_POLICY_VARIABLES = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "20000",  # about 0.3 ms
    "KMP_BLOCKTIME": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
SLOW_RATIO = 1.5  # times the quickest pass: something else wants the machine
NO_IMPROVEMENT_RATIO = 0.95  # of how slow it was: fewer threads have not helped
MIN_PASSES = 8  # to tell a busy machine from a stall
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 30.0, 480.0  # seconds


def use_passive_waiting() -> None:
    """Let waiting threads sleep soon, in this process, unless its user has said otherwise."""
    for name, value in WAIT_POLICY_VARIABLES.items():
        os.environ.setdefault(name, value)


def threads_for(weights_bytes: int, default_threads: int) -> int:
    """How many threads should compute with so many bytes of weights, unless the user of this process has said."""
    return default_threads if is_thread_count_set() or weights_bytes >= SMALL_MODEL_BYTES else 1


def is_thread_count_set() -> bool:
    """Whether the user of this process has said how many threads compute."""
    return THREADS_VARIABLE in os.environ


class ThreadWatchdog:
    """Gives threads up on a busy machine and takes them back, whichever makes passes quicker there, as measured.

    A pass is held against the quickest one like it. When those of an answer were slow, the next answer gets half the
    threads. If that is no better they come back at once, and else after a while; each time in vain the wait is doubled.
    Rounding may hang on the number of threads, so it never changes while anybody is being answered; nor does it when
    somebody else has changed it.
    """

    def __init__(
        self,
        max_threads: int,
        get_threads: Callable[[], int],
        set_threads: Callable[[int], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.threads = self.max_threads = max_threads
        self._get_threads, self._set_threads, self._clock = get_threads, set_threads, clock
        self._fastest_seconds: dict[Hashable, float] = {}  # seconds of a pass with all threads
        self._slowdowns: list[float] = []  # of passes since the last decision, by the quickest
        self._previous_slowdown = 0.0  # how slow passes were that made threads fewer
        self._running_answers, self._wait_seconds, self._wait_until = 0, FIRST_WAIT_SECONDS, 0.0

    @contextmanager
    def answering(self) -> Generator[None]:
        """Somebody is being answered. Before the first of those who are answered in turns, threads may change."""
        if not self._running_answers:
            self._decide()
        self._running_answers += 1
        try:
            yield
        finally:
            self._running_answers -= 1

    def record_pass(self, kind: Hashable, seconds: float) -> None:
        """A pass took so long; `kind` tells those apart that do not cost the same."""
        quickest = self._fastest_seconds.get(kind)
        if self.threads == self.max_threads:
            quickest = self._fastest_seconds[kind] = min(quickest or seconds, seconds)
        if quickest:
            self._slowdowns.append(seconds / quickest)

    def _decide(self) -> None:
        if len(self._slowdowns) < MIN_PASSES or self._get_threads() != self.threads:
            return
        now, slowness, are_fewer = self._clock(), median(self._slowdowns), self.threads < self.max_threads
        self._slowdowns.clear()
        if are_fewer and slowness > NO_IMPROVEMENT_RATIO * self._previous_slowdown:
            self._restore_threads(now)
            self._wait_until = now + self._wait_seconds
        elif are_fewer and now >= self._wait_until:
            self._restore_threads(now)
        elif slowness > SLOW_RATIO and self.threads > 1 and (are_fewer or now >= self._wait_until):
            self._previous_slowdown, self._wait_until = slowness, now + self._wait_seconds
            self._change_threads(max(self.threads // 2, 1))
        elif slowness <= SLOW_RATIO and not are_fewer:
            self._wait_seconds = FIRST_WAIT_SECONDS

    def _restore_threads(self, now: float) -> None:
        self._wait_seconds, self._wait_until = min(2 * self._wait_seconds, MAX_WAIT_SECONDS), now
        self._change_threads(self.max_threads)

    def _change_threads(self, threads: int) -> None:
        self.threads = threads
        self._set_threads(threads)
