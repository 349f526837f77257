"""A real server: `transformers serve` with the embedded model gives the same text as the local engine.

Skipped without fastapi, uvicorn and accelerate, which are in the extra `dev`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event as Flag

import pytest

from specchat.chat.events import Finished, TextDelta
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from specchat_fleet.server_session import ServerEngine, connect_server

for package in ("fastapi", "uvicorn", "accelerate"):
    pytest.importorskip(package)
pytestmark = pytest.mark.full
TARGET = Path(__file__).parents[3] / "specchat" / "embedded" / "target"
QUESTION = "Name three colours."


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path_factory.mktemp("hub"))}
    words = ["serve", str(TARGET), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    command = [sys.executable, "-m", "transformers.cli.transformers", *words]
    server = subprocess.Popen(command, env=os.environ | home, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/health", server)
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait(120)


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the server ended")


@pytest.fixture
def engine(url) -> Iterator[ServerEngine]:
    values = {"models.backend": "openai", "models.url": url, "models.target": str(TARGET), "limits.answer": 24}
    with closing(connect_server(Profile().override(values))) as opened:
        yield opened


def test_it_writes_what_our_own_engine_writes(engine):
    from specchat.loading.load_engine import load_engine

    events = list(engine.create_session().ask(QUESTION))
    values = {"limits.answer": 24, "prompt.system": "", "speculation.variant": "plain"}
    own = load_engine(load_profile("plain").override(values)).create_session()

    assert isinstance(events[-1], Finished)
    assert said(events) == said(own.ask(QUESTION)) != ""
    assert events[-1].totals.prompt_tokens > 0 and events[-1].totals.completion_tokens > 0


def test_it_can_be_left_in_the_middle_and_asked_again(engine):
    session, cancelled = engine.create_session(), Flag()
    for event in session.ask(QUESTION, cancelled):
        if isinstance(event, TextDelta) and event.text:
            cancelled.set()

    *_, finished = session.ask("And now?")

    assert isinstance(finished, Finished) and finished.finish_reason in ("stop", "length")
    assert len(session.turns) == 2


def said(events) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))
