"""A host process with the fake engine: `python fake_host.py [--version V] [--patience SECONDS] [--deaf] ...`.

A deaf host ignores the signals that should end it. `--clock FILE` names a file with the seconds by which the wall clock
is wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import specchat.host.host_process as process
from specchat.host.server import HostTimeouts, Server
from tests.host.fake import fake_parts


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


if __name__ == "__main__":
    process.__version__ = option("--version") or process.__version__
    if "--deaf" in sys.argv:
        Server._exit_on_signal = lambda *_arguments: None
    if clock := option("--clock"):
        true_time = time.time
        time.time = lambda: true_time() + float(Path(clock).read_text(encoding="ascii"))
    seconds = float(option("--patience") or 60)
    sys.exit(
        process.run_host(fake_parts(HostTimeouts(idle_unload_seconds=seconds, idle_exit_seconds=seconds)), sys.argv[1:])
    )
