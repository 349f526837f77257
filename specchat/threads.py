"""The number of compute threads on a CPU, and how they wait for each other. Imports nothing heavy.

Threads that spin while they wait turn a step of 2.5 ms into 55 ms on a busy machine; threads that sleep at once lose a
quarter of the speed of an idle machine, because they wake up late. So they spin for the time between two layers, a
fraction of a millisecond, and then sleep. This must be set before torch is imported. A small model gains little by
threads and loses much: the starter takes 3.9 ms for a token with one thread, 3.3 with two on two free cores, and 34
beside one other program. So it gets one thread. For a large model, a watchdog reduces the threads while other programs
use the machine, if that makes passes faster.
"""

import os
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from statistics import median
from time import monotonic

SMALL_MODEL_BYTES = 256 * 2**20  # of weights; a layer of less ends before another thread is awake
THREADS_VARIABLE = "OMP_NUM_THREADS"
WAIT_POLICY_VARIABLES = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "20000",  # about 0.3 ms
    "KMP_BLOCKTIME": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
SLOW_RATIO = 1.5  # times the fastest pass: other programs use the machine
NO_IMPROVEMENT_RATIO = 0.95  # of the slowdown before: fewer threads did not help
MIN_PASSES = 8  # to distinguish a busy machine from a stall
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 30.0, 480.0


def use_passive_waiting() -> None:
    """Let waiting threads of this process sleep soon, unless its environment sets something else."""
    for name, value in WAIT_POLICY_VARIABLES.items():
        os.environ.setdefault(name, value)


def threads_for(weights_bytes: int, default_threads: int) -> int:
    """The number of threads for a model of this size, unless the user has set one."""
    return default_threads if is_thread_count_set() or weights_bytes >= SMALL_MODEL_BYTES else 1


def is_thread_count_set() -> bool:
    """Whether the environment sets the number of threads."""
    return THREADS_VARIABLE in os.environ


class ThreadWatchdog:
    """Reduces the threads on a busy machine and restores them, by measured pass times.

    Each pass is compared with the fastest pass of its kind. When the passes of an answer were slow, the next answer
    gets half the threads. If this does not help, the watchdog restores them at once, and otherwise after a wait, which
    doubles after each failed attempt. Rounding can depend on the number of threads, so it never changes during an
    answer. It does not change either when other code has changed it.
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
        self._fastest_seconds: dict[Hashable, float] = {}  # of a pass with all threads, by kind
        self._slowdowns: list[float] = []  # of passes since the last decision, relative to the fastest
        self._previous_slowdown = 0.0  # before the threads were reduced
        self._running_answers, self._wait_seconds, self._wait_until = 0, FIRST_WAIT_SECONDS, 0.0

    @contextmanager
    def answering(self) -> Generator[None]:
        """Mark a running answer. The threads may change before the first of several concurrent answers."""
        if not self._running_answers:
            self._decide()
        self._running_answers += 1
        try:
            yield
        finally:
            self._running_answers -= 1

    def record_pass(self, kind: Hashable, seconds: float) -> None:
        """Add the time of a pass; passes of the same kind have similar costs."""
        fastest = self._fastest_seconds.get(kind)
        if self.threads == self.max_threads:
            fastest = self._fastest_seconds[kind] = min(fastest or seconds, seconds)
        if fastest:
            self._slowdowns.append(seconds / fastest)

    def _decide(self) -> None:
        if len(self._slowdowns) < MIN_PASSES or self._get_threads() != self.threads:
            return
        now, slowdown, are_fewer = self._clock(), median(self._slowdowns), self.threads < self.max_threads
        self._slowdowns.clear()
        if are_fewer and slowdown > NO_IMPROVEMENT_RATIO * self._previous_slowdown:
            self._restore_threads(now)
            self._wait_until = now + self._wait_seconds
        elif are_fewer and now >= self._wait_until:
            self._restore_threads(now)
        elif slowdown > SLOW_RATIO and self.threads > 1 and (are_fewer or now >= self._wait_until):
            self._previous_slowdown, self._wait_until = slowdown, now + self._wait_seconds
            self._change_threads(max(self.threads // 2, 1))
        elif slowdown <= SLOW_RATIO and not are_fewer:
            self._wait_seconds = FIRST_WAIT_SECONDS

    def _restore_threads(self, now: float) -> None:
        self._wait_seconds, self._wait_until = min(2 * self._wait_seconds, MAX_WAIT_SECONDS), now
        self._change_threads(self.max_threads)

    def _change_threads(self, threads: int) -> None:
        self.threads = threads
        self._set_threads(threads)
