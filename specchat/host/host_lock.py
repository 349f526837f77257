"""The lock that the host holds while it runs, who holds it, and how that process is ended without its cooperation.

The lock file names its holder: the process id and the time at which the process started, because the kernel reuses ids.
A signal goes to the holder only if both fit and the lock is held. On a full disk the file names nothing, and the holder
is the process that listens. Knows no protocol, so a host that answers nothing can be named and ended.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from specchat.errors import HostError
from specchat.file_lock import try_lock
from specchat.host.address import LOCK_NAME
from specchat.host.spawn import listening_process, runtime_folder

STOP_SECONDS = 6.0  # a host stores its answers and exits within four seconds
KILL_SECONDS = 3.0
POLL_SECONDS = 0.02
UNKNOWN_START = "unknown"
START_TIME_FIELD = 19  # of /proc/PID/stat, after the name of the program
STOP_HINT = "'specchat host stop' ends it, and the next command starts a new one"


@dataclass(frozen=True)
class StoppedHost:
    process_id: int
    was_killed: bool


def host_lock() -> IO[bytes]:
    return (runtime_folder() / LOCK_NAME).open("a+b", buffering=0)


def write_holder(lock: IO[bytes]) -> None:
    """Name this process as the holder of the lock, which it holds; on a full disk it stays without a name."""
    lock.truncate(0)
    with suppress(OSError):
        lock.write(f"{os.getpid()} {_start_time(os.getpid())}\n".encode())


def running_host() -> int | None:
    """The process id of the running host; None when none runs. HostError when the lock names no living process."""
    with host_lock() as lock:
        return None if try_lock(lock) else _holder(lock)


def describe_host() -> str:
    """The engine process in words, with its process id where it is known."""
    with suppress(HostError):
        if process_id := running_host():
            return f"the engine process {process_id}"
    return "the engine process"


def no_answer_error(seconds: float) -> HostError:
    return HostError(f"{describe_host()} has not answered for {seconds:.0f} s; {STOP_HINT}")


def stop_host() -> StoppedHost | None:
    """End the running host: politely, and after STOP_SECONDS by force. None when none runs."""
    with host_lock() as lock:
        if try_lock(lock):
            return None
        started = _start_time(process_id := _holder(lock))  # one that ends may listen no more
        os.kill(process_id, signal.SIGTERM)  # Windows ends it at once
        with suppress(ProcessLookupError, AttributeError):  # it is gone, or the system has no such signal
            os.kill(process_id, signal.SIGCONT)  # a suspended process can react only when it runs
        if _until(lambda: try_lock(lock), STOP_SECONDS):
            return StoppedHost(process_id, was_killed=False)
        if _start_time(process_id) == started:
            os.kill(process_id, getattr(signal, "SIGKILL", signal.SIGTERM))
        if _until(lambda: try_lock(lock), KILL_SECONDS):
            return StoppedHost(process_id, was_killed=True)
    raise HostError(f"the engine process {process_id} was killed and has not ended; it may wait for a disk")


def _holder(lock: IO[bytes]) -> int:
    """The process that holds the lock; HostError when the file does not name it."""
    lock.seek(0)
    process_id, _, start_time = lock.read(100).decode(errors="replace").strip().partition(" ")
    if process_id.isdigit() and start_time and _start_time(int(process_id)) == start_time:
        return int(process_id)
    if listening := listening_process():
        return listening
    path = runtime_folder() / LOCK_NAME
    raise HostError(f"{path} is held by a process that it does not name; end it by hand ('fuser {path}' names it)")


def _start_time(process_id: int) -> str:
    """When a process started, in the words of the system; "" for no such process, UNKNOWN_START on Windows.

    There, the id alone has to do: the holder writes it right after it has locked the file.
    """
    if os.name == "nt":
        return UNKNOWN_START
    stat = Path(f"/proc/{process_id}/stat")
    try:
        return stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[START_TIME_FIELD]
    except (OSError, IndexError):
        if stat.parents[1].joinpath("self").exists():
            return ""
    command = ["ps", "-o", "lstart=", "-p", str(process_id)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
