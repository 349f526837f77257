"""A world of its own for every test: runtime folder, history, and hosts with a fake engine that end with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.host import client, spawn
from specchat.host.client import connect

FAKE_HOST = (sys.executable, "-m", "tests.host.fake_host")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A world of its own for a test."""
    yield from world(monkeypatch)


def world(patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder name, for a socket's name must be short; its host, if any, is killed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="spec-"))
    patch.setenv("SPECCHAT_RUNTIME", str(folder))
    patch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)
    lines: list[client.HostConnection] = []

    class NotedLine(client.HostConnection):
        """One whose host is killed while it says hello has nobody to close it."""

        def __init__(self, peer: socket.socket, name: str) -> None:
            self._sock = peer
            lines.append(self)
            super().__init__(peer, name)

    patch.setattr(client, "HostConnection", NotedLine)
    yield folder
    for line in lines:
        line.close()
    patch.setenv("SPECCHAT_RUNTIME", str(folder))  # a test may have said otherwise
    kill_host()
    shutil.rmtree(folder, ignore_errors=True)  # a host that is just ending may clean up as well


def kill_host() -> None:
    try:
        line = connect("test", starts_host=False)
        if line:
            os.kill(line.host_info["pid"], signal.SIGKILL)
            line.close()
    except Exception:  # whatever a test did to its folder, no process may stay  # noqa: BLE001
        pass
