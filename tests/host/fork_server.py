"""A process that has imported what fake hosts need, and becomes each of them by a fork, in a tenth of the time.

A test run has one, which ends with it. Hosts have the descriptors, environment, folder and session that they would
have without it; `tests.host.start_forked` is what starts them. Knows no engine.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import NoReturn

ADDRESS_VARIABLE = "SPECCHAT_TEST_FORKS"  # for programs that a test starts
ADDRESS = Path(os.environ.get(ADDRESS_VARIABLE) or Path(tempfile.gettempdir(), f"specchat-forks-{os.getpid()}"))
PRELOADED = ("specchat.host.host_process", "specchat.host.server", "tests.host.fake")
MAX_ORDER_BYTES = 1_000_000


def forked_host(module: str) -> tuple[str, ...]:
    """The command of a host of this module."""
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name("start_forked.py")), str(ADDRESS), module)


@cache
def start_fork_server() -> None:
    """Start the one of this process. It ends with this process, which it notices by its standard input."""
    if sys.platform != "linux":  # others have no such sockets; there, each host is a process of its own
        return
    ADDRESS.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(ADDRESS))
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.host.fork_server", str(listener.fileno())],
            stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=Path(__file__).parents[2],
        )  # fmt: skip
    os.environ[ADDRESS_VARIABLE] = str(ADDRESS)
    atexit.register(_end, server)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.communicate()
    ADDRESS.unlink()


def serve(listener: socket.socket) -> None:
    """Fork for each order until the standard input ends."""
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        peer, _ = listener.accept()
        with peer:
            if not os.fork():
                listener.close()
                _run_and_report(peer)


def _run_and_report(peer: socket.socket) -> NoReturn:
    """Run the ordered module in a fork, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, descriptors, _, _ = socket.recv_fds(peer, MAX_ORDER_BYTES, 3)
    if host := os.fork():
        for descriptor in descriptors:
            os.close(descriptor)
        peer.send(str(os.waitstatus_to_exitcode(os.waitpid(host, 0)[1])).encode())
        os._exit(0)
    peer.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    order = marshal.loads(content)
    _become(order["module"], order["arguments"], order["environment"], order["folder"])


def _become(module: str, arguments: list[str], environment: dict[str, str], folder: str) -> NoReturn:
    """Run the module as the main program of this process, in a session of its own."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 (Python does the same)
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    for name in PRELOADED:
        __import__(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
