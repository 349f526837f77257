"""An agent on a thread of this process, with the fake engine; tests about processes start real ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from acp_tests.driver import FULL, Editor
from specchat.host.client import SessionRequest
from specchat_editors.acp.agent import serve_acp
from tests.host.conftest import world


class Served:
    """An agent and its editor."""

    def __init__(self) -> None:
        (incoming, to_agent), (from_agent, outgoing) = os.pipe(), os.pipe()
        self.editor = Editor(to_agent, from_agent)
        self._descriptors = incoming, outgoing
        self.code: int | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        incoming, outgoing = self._descriptors
        self.code = asyncio.run(serve_acp(incoming, outgoing, lambda _folder: SessionRequest()))
        os.close(outgoing)

    def end(self) -> None:
        try:
            self.editor.hang_up()
        except OSError:
            pass  # a test did
        self._thread.join(120)
        assert not self._thread.is_alive()
        for descriptor in (self._descriptors[0], self.editor.from_agent):
            os.close(descriptor)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Path]:
    """One world for the tests of a file: a session is always new, and lists can be of a test's own folder."""
    with pytest.MonkeyPatch.context() as patch:
        yield from world(patch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def stranger(runtime) -> Iterator[Editor]:
    """An editor that has not said who it is."""
    served = Served()
    yield served.editor
    served.end()


@pytest.fixture
def editor(stranger: Editor) -> Editor:
    """One without files of its own."""
    stranger.initialize()
    return stranger


@pytest.fixture
def full(stranger: Editor) -> Editor:
    """One that reads and writes files itself."""
    stranger.initialize(FULL)
    return stranger
