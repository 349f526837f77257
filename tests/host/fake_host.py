"""A host process with the fake engine: `python fake_host.py [--version V] [--patience SECONDS] [--deaf] ...`.

A deaf host ignores the signals that should end it. `--clock FILE` names a file with the seconds by which the wall clock
is wrong, `--token-timeout SECONDS` is how long a client may take to show its token. With `--windows` the host lacks
what Windows lacks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

if "--windows" in sys.argv:
    from tests.windows import hide_posix

    hide_posix()

import specchat.host.host_process as process
from specchat.host import address
from specchat.host.server import HostTimeouts, Server
from tests.host.fake import FakeLoader


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


if __name__ == "__main__":
    process.__version__ = option("--version") or process.__version__
    if "--deaf" in sys.argv:
        Server._exit_on_signal = lambda *_arguments: None
    if clock := option("--clock"):
        true_time = time.time
        time.time = lambda: true_time() + float(Path(clock).read_text(encoding="ascii"))
    address.TOKEN_TIMEOUT_SECONDS = float(option("--token-timeout") or address.TOKEN_TIMEOUT_SECONDS)
    seconds = float(option("--patience") or 60)
    timeouts = HostTimeouts(idle_unload_seconds=seconds, idle_exit_seconds=seconds)
    sys.exit(process.run_host(sys.argv[1:], FakeLoader(), timeouts))
