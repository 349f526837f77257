"""Starts and ends a host process: descriptors, lock, log; everything before and after `serve`.

Imports no torch: a host answers `hello` before it loads a model.
"""

import logging
import os
import sys
import time
from pathlib import Path
from typing import IO, NoReturn

from specchat import __version__
from specchat.errors import HostError, SpecchatError
from specchat.file_lock import try_lock
from specchat.history.history_writer import HistoryWriter
from specchat.host.address import listen
from specchat.host.engine_loader import EngineLoader
from specchat.host.host_lock import describe_host, host_lock, write_holder
from specchat.host.methods import HostIdentity
from specchat.host.server import HostTimeouts, Server
from specchat.host.spawn import (
    configuration_hash,
    fallback_history_path,
    find_host,
    history_path,
    history_place_warning,
    runtime_folder,
)
from specchat.log_file import MAX_LOG_BYTES, log_to_stderr
from specchat.threads import use_passive_waiting

LOCK_TIMEOUT_SECONDS = 5.0
PATIENT = HostTimeouts()


def run_host(arguments: list[str], loader: EngineLoader, timeouts: HostTimeouts = PATIENT) -> int:
    """Run the host for all clients of this user; returns the exit code."""
    use_passive_waiting()
    ready_fd = os.dup(1) if "--ready" in arguments else None  # standard output becomes the log
    if ready_fd is not None and hasattr(os, "fork") and os.fork():
        os._exit(0)
    try:
        return _run_and_listen(loader, timeouts, ready_fd)
    except (SpecchatError, OSError) as error:
        if ready_fd is None:
            print(f"specchat: {error}", file=sys.stderr)
        else:
            os.write(ready_fd, str(error).encode())
        return getattr(error, "exit_code", 1)


def _run_and_listen(loader: EngineLoader, timeouts: HostTimeouts, ready_fd: int | None) -> int:
    folder = runtime_folder()
    _redirect_output_to_log(folder / "host.log")
    with host_lock() as lock:
        if not _wait_for_lock(lock):
            _report_ready(ready_fd)  # another host already serves
            return 0
        write_holder(lock)
        history = HistoryWriter(history_path(), fallback_path=fallback_history_path())
        history.warning = history.warning or history_place_warning(history.path)
        listener, identity = listen(folder), HostIdentity(__version__, configuration_hash())
        server = Server(listener, identity, loader, history, timeouts)
        _report_ready(ready_fd)
        try:
            server.run()
        finally:
            listener.file.unlink(missing_ok=True)
        return _exit_now()


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
    log_to_stderr(logging.INFO)
    sys.stdout = sys.stderr


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
            raise HostError(f"{describe_host()} neither serves nor exits; run 'specchat host stop'")
        time.sleep(0.02)


def _report_ready(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready")
        os.close(ready_fd)
