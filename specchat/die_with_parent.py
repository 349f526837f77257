"""`python -m specchat.die_with_parent …` runs `specchat …`, and exits when the parent process dies."""

import os
import runpy
import signal
import time
from threading import Thread

from specchat.python_child import python_command

POLL_SECONDS = 0.5


def command_with_parent(*words: str) -> tuple[str, ...]:
    """The words that run `specchat …` for as long as the process lives that starts it, such as a server of screens."""
    return python_command("specchat.die_with_parent", *words)


def main() -> None:
    Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True, name="parent-watch").start()
    runpy.run_module("specchat", run_name="__main__", alter_sys=True)


def _exit_with_parent(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
