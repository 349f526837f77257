"""The process of a tab: `python tab.py PROGRAM …` runs a program of Python, and exits when the parent process dies.

A script that imports the standard library alone: what else is imported, and from where, is the program's decision.
"""

import os
import runpy
import signal
import sys
import time
from threading import Thread

POLL_SECONDS = 0.5


def main() -> None:
    Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True, name="parent-watch").start()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _exit_with_parent(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
