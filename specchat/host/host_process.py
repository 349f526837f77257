"""Starts and ends a host process: descriptors, lock, log; everything before and after `serve`.

Imports no torch: a host answers `hello` before it loads a model.
"""

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from specchat import __version__
from specchat.errors import HostError, SpecchatError
from specchat.host.engine_interface import EngineLoader
from specchat.host.history_writer import HistoryWriter
from specchat.host.methods import HostIdentity
from specchat.host.open_sessions import SessionCallbacks
from specchat.host.server import HostTimeouts, Server, serve, serve_stdio
from specchat.host.spawn import (
    fallback_history_path,
    find_host,
    history_path,
    host_lock,
    metrics_port_path,
    runtime_folder,
    try_lock,
)
from specchat.threads import use_passive_waiting

LOCK_TIMEOUT_SECONDS = 10.0
MAX_LOG_BYTES = 5 * 2**20
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class HostComponents:
    """The parts of a host that tests replace."""

    session_callbacks: SessionCallbacks
    engine_loader: EngineLoader
    configuration_hash: Callable[[], str]
    timeouts: HostTimeouts = HostTimeouts()


def run_host(components: HostComponents, arguments: list[str]) -> int:
    """Run the host; returns the exit code. `--stdio` serves the parent process, otherwise all clients of this user."""
    use_passive_waiting()
    if "--stdio" in arguments:
        return _run_on_stdio(components)
    ready_fd = int(arguments[arguments.index("--ready") + 1]) if "--ready" in arguments else None
    if ready_fd is not None and os.fork():
        os._exit(0)
    try:
        return _run_on_socket(components, ready_fd)
    except (SpecchatError, OSError) as error:
        if ready_fd is None:
            print(f"specchat: {error}", file=sys.stderr)
        else:
            os.write(ready_fd, str(error).encode())
        return getattr(error, "exit_code", 1)


def _run_on_socket(components: HostComponents, ready_fd: int | None) -> int:
    folder = runtime_folder()
    _redirect_output_to_log(folder / "host.log")
    with host_lock() as lock:
        if not _wait_for_lock(lock):
            _report_ready(ready_fd)  # another host already serves
            return 0
        server = _make_server(components, metrics_port_path())
        server.rpc_handler.metrics_server.restore_port()
        serve(server, folder / "host.sock", lambda: _report_ready(ready_fd))
        return _exit_now()


def _run_on_stdio(components: HostComponents) -> int:
    """Serve on copies of stdin and stdout; prints go to the log, so that only the protocol writes to stdout."""
    _die_with_parent()
    stdin, stdout = os.dup(0), os.dup(1)
    _redirect_output_to_log(runtime_folder() / f"host-{os.getpid()}.log")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve_stdio(_make_server(components), stdin, stdout)
    (runtime_folder() / f"host-{os.getpid()}.log").unlink(missing_ok=True)
    return _exit_now()


def _make_server(components: HostComponents, port_file: Path | None = None) -> Server:
    identity = HostIdentity(__version__, components.configuration_hash())
    history = HistoryWriter(history_path(), fallback_path=fallback_history_path())
    return Server(
        identity, components.session_callbacks, components.engine_loader, history, components.timeouts, port_file
    )


def _exit_now() -> NoReturn:
    """Exit without waiting for the engine thread, which may still compute."""
    logging.shutdown()
    os._exit(0)


def _redirect_output_to_log(path: Path) -> None:
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _wait_for_lock(lock: IO[bytes]) -> bool:
    """Wait for the host lock while the previous host exits; False when another host serves."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        if try_lock(lock):
            return True
        if peer := find_host():
            peer.close()
            return False
        if time.monotonic() > deadline:
            raise HostError("an old engine process neither serves nor exits; run 'specchat host stop'")
        time.sleep(0.02)


def _report_ready(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready")
        os.close(ready_fd)


def _die_with_parent() -> None:
    """On Linux, exit when the parent process dies, even by SIGKILL.

    The kernel also sends the signal when only the parent's starting thread ends; then the parent id is unchanged.
    """
    parent_pid = os.getppid()

    def exit_if_orphaned(_number: int, _frame: object) -> None:
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGTERM)

    if sys.platform == "linux":
        signal.signal(signal.SIGUSR2, exit_if_orphaned)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGUSR2)
