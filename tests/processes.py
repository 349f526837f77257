"""Other processes: what a new Python imports, whether one has ended or come so far, and which of several compiles."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from specchat.file_lock import try_lock

PATIENCE_SECONDS = 30.0  # less than what a test starts would live


def modules_after(code: str) -> set[str]:
    """The modules that a new Python process has loaded after this code."""
    program = f"{code}\nimport sys; print('loaded:', *sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(run.stdout.rpartition("loaded:")[2].split())


def is_gone(id_file: Path) -> bool:
    """Whether the process that wrote its id there has ended, or ends before a busy machine has lost its patience."""
    stat = Path(f"/proc/{id_file.read_text().strip()}/stat")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if stat.read_text().split()[2] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


@contextmanager
def alone_among_test_processes(run_folder: Path) -> Iterator[None]:
    """Of the test processes of a run, one at a time compiles: the others find what it has made."""
    with (run_folder / "compiling.lock").open("a+b") as lock:
        while not try_lock(lock):
            time.sleep(0.1)
        yield


def set_when_written(flag: Event, file: Path) -> None:
    """Set the flag as soon as another process has written a line to this file."""

    def wait() -> None:
        while not file.exists() or "\n" not in file.read_text():
            time.sleep(0.01)
        flag.set()

    Thread(target=wait, daemon=True).start()
