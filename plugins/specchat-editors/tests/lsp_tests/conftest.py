"""Servers with the fake host; tests of a module share one host and one server unless they need their own."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lsp_tests.driver import Editor
from specchat.host.protocol import RpcRequest, encode
from tests.host.conftest import new_folder
from tests.host.fake import write_odd_profiles
from tests.host.fork_server import start_fork_server


@contextmanager
def runtime_folder() -> Iterator[Path]:
    """A runtime folder, whose host ends with it."""
    folder = new_folder()
    write_odd_profiles()
    start_fork_server()
    yield folder
    with suppress(OSError), socket.socket(socket.AF_UNIX) as host:
        host.connect(str(folder / "host.sock"))
        host.settimeout(5)
        host.sendall(encode(RpcRequest(1, "shutdown", {})))
        while host.recv(2**16):
            pass
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def world() -> Iterator[Path]:
    """Where the host of this module lives."""
    with runtime_folder() as folder:
        yield folder


@pytest.fixture
def fresh_world() -> Iterator[Path]:
    """Where no host lives yet."""
    with runtime_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def shared(world) -> Iterator[Editor]:
    """A server that has begun, with an engine that is ready; only `editor` may take it."""
    editor = Editor(world)
    editor.begin({"debounceMs": 0})
    editor.is_loaded()
    yield editor
    editor.end()


@pytest.fixture
def editor(shared, world) -> Editor:
    """The shared server, as if nothing had been said yet."""
    (world / "asked").unlink(missing_ok=True)
    shared.notices.clear()
    return shared


@pytest.fixture
def start(world) -> Iterator[Callable[..., Editor]]:
    """Start servers that end with the test, whatever becomes of it."""
    (world / "asked").unlink(missing_ok=True)
    started: list[Editor] = []

    def start(*command: str, world: Path = world, **more: object) -> Editor:
        started.append(Editor(world, *([command] if command else []), **more))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def asked(world) -> Callable[[], list[str]]:
    """What the engine was asked during this test, and how it ended."""

    def asked() -> list[str]:
        with suppress(FileNotFoundError):
            return [line for line in (world / "asked").read_text().splitlines() if "ready" not in line]
        return []

    return asked
