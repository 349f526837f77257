"""The clock of passes: it stands still while kernels are prepared, which no later pass repeats.

Measured times of passes decide what is drafted and are shown as the speed against plain decoding. A pass that captures
a CUDA graph takes many times as long as the passes that replay it, so its preparation is not counted. Knows no device.
"""

from collections.abc import Generator
from contextlib import contextmanager
from threading import local
from time import perf_counter


class _Paused(local):
    seconds = 0.0


_paused = _Paused()


def pass_seconds() -> float:
    """Seconds on the clock of this thread; differences are the time that passes take."""
    return perf_counter() - _paused.seconds


@contextmanager
def paused_clock() -> Generator[None]:
    """Stop the clock of this thread."""
    started_at = pass_seconds()
    try:
        yield
    finally:
        _paused.seconds += pass_seconds() - started_at
