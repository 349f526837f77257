"""A runtime folder for each test, with its own history and its own hosts with a fake engine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from specchat.errors import SpecchatError
from specchat.host import host_connection, host_lock, pending_answer, spawn
from specchat.host.host_lock import running_host
from tests.host.fake import write_odd_profiles
from tests.host.fork_server import forked_host, start_fork_server

MEMORY = Path("/dev/shm")  # where a history waits for no disk
FAKE_HOST = forked_host("tests.host.fake_host")
PATIENT_SECONDS = 120.0
USERS_PATIENCE = (  # after so long, a user is told that a host hangs; one of a test may wait for a busy machine
    (host_connection, "HELLO_TIMEOUT_SECONDS"), (host_connection, "RESPONSE_TIMEOUT_SECONDS"),
    (spawn, "CONNECT_TIMEOUT_SECONDS"), (spawn, "START_TIMEOUT_SECONDS"), (pending_answer, "UNANSWERED_SECONDS"),
    (pending_answer, "GIVE_UP_SECONDS"), (host_lock, "STOP_SECONDS"), (host_lock, "KILL_SECONDS"),
)  # fmt: skip


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime folder of the test."""
    yield from world(monkeypatch)


def new_folder() -> Path:
    """A folder with a short path, as sockets need it."""
    return Path(tempfile.mkdtemp(prefix="spec-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))


def be_patient(patch: pytest.MonkeyPatch) -> None:
    for module, limit in USERS_PATIENCE:
        patch.setattr(module, limit, PATIENT_SECONDS)


def world(patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a host, which is killed at the end."""
    be_patient(patch)
    folder = new_folder()
    patch.setenv("SPECCHAT_RUNTIME", str(folder))
    patch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)
    start_fork_server()
    write_odd_profiles()
    connections: list[host_connection.HostConnection] = []

    class RecordedConnection(host_connection.HostConnection):
        """Recorded before `hello`, so that it is closed even if the host dies during `hello`."""

        def __init__(self, peer: socket.socket, name: str) -> None:
            self._sock = peer
            connections.append(self)
            super().__init__(peer, name)

    patch.setattr(host_connection, "HostConnection", RecordedConnection)
    yield folder
    for connection in connections:
        connection.close()
    patch.setenv("SPECCHAT_RUNTIME", str(folder))  # a test may have changed it
    kill_host()
    shutil.rmtree(folder, ignore_errors=True)  # an exiting host may remove files as well


def kill_host() -> None:
    with suppress(SpecchatError):  # a test may have damaged its folder
        if pid := running_host():
            os.kill(pid, signal.SIGKILL)
