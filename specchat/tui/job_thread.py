"""A thread that runs one job after another. It is a daemon: a host that does not answer cannot keep the app open."""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import ParamSpec

CLOSE_TIMEOUT_SECONDS = 0.5

Arguments = ParamSpec("Arguments")


class JobThread(Thread):
    """`on_error` gets what a job raises, and `on_end` is called on the thread after the last job."""

    def __init__(self, name: str, on_error: Callable[[Exception], None], on_end: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._on_error, self._on_end = on_error, on_end
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, job: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Queue a call, and return at once."""
        self._jobs.put(partial(job, *args, **kwargs))

    def run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 (the edge: the screen survives)
                self._on_error(error)
        self._on_end()

    def close(self) -> None:
        """End after the queued jobs; one that still waits for the host ends with the process."""
        self._jobs.put(None)
        if self.is_alive():  # not started if the app closes before the first frame
            self.join(CLOSE_TIMEOUT_SECONDS)
