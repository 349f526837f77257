"""Ctrl-C as a flag: the first one stops an answer within a step, and the partial answer is kept."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event as Flag
from threading import current_thread, main_thread


class InterruptFlag(Flag):
    """Set when the user or the system stops the work; `exit_code` is the code that shells expect."""

    exit_code = 128 + signal.SIGINT


@contextmanager
def interruptible() -> Generator[InterruptFlag]:
    """A flag that the first Ctrl-C (or SIGTERM) sets; the second one interrupts as usual."""
    stopped = InterruptFlag()
    if current_thread() is not main_thread():
        yield stopped  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, _frame: object) -> None:
        stopped.exit_code = 128 + number
        stopped.set()
        restore()

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        restore()


@contextmanager
def keyboard_interrupts() -> Generator[None]:
    """Ctrl-C interrupts as usual, for a question to the user amid work that a flag stops."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
