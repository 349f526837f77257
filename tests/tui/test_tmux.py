"""The program as a user runs it: the embedded model, a host of its own, a screen inside tmux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.host.conftest import kill_host

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from specchat.cli.lazy_group import LazyCommand
from specchat.cli.main import COMMANDS, run
COMMANDS["chat"] = LazyCommand("specchat.cli.chat:chat", "")
sys.exit(run(["chat", *sys.argv[1:]]))
"""
PATIENCE_SECONDS = 90.0

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here"),
]


class Pane:
    """A terminal of 100 by 30 in a tmux server of its own: a server that is ending refuses new sessions."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.socket = str(folder / name)
        environment = {**os.environ, "SPECCHAT_CONFIG": str(folder), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        environment.pop("TMUX", None)
        command = [sys.executable, "-c", PROGRAM, *arguments]
        self.tmux("new-session", "-d", "-x", "100", "-y", "30", "-c", str(ROOT), *command, environment=environment)
        self.tmux("set-option", "remain-on-exit", "on")

    def tmux(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        command = ["tmux", "-f", "/dev/null", "-S", self.socket, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return run.stdout

    @property
    def shown(self) -> str:
        return self.tmux("capture-pane", "-p")

    def wait_for_text(self, *texts: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not all(text in (shown := self.shown) for text in texts):
            assert time.monotonic() < until, f"{texts} did not come:\n{shown}"
            time.sleep(0.05)

    def ends(self) -> None:
        """Wait until the program has ended."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.tmux("display-message", "-p", "#{pane_dead}").strip() != "1":
            assert time.monotonic() < until, self.shown
            time.sleep(0.05)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def sit_down(runtime, monkeypatch):
    """Open a pane; all panes are closed at the end."""
    panes: list[Pane] = []

    def open_pane(*arguments: str) -> Pane:
        panes.append(Pane(runtime, f"tmux-{len(panes)}", *arguments))
        return panes[-1]

    yield open_pane
    for pane in panes:
        pane.close()


def test_the_embedded_model_answers_with_numbers_and_is_continued(sit_down):
    pane = sit_down("--max-tokens", "64")
    pane.wait_for_text("Ask something below", "│ RAM")
    pane.type("What is your name?")
    pane.press("Enter")
    pane.wait_for_text("› What is your name?", "tok ·", " t/s", "│ctx ")

    pane.press("C-q")
    pane.ends()
    pane.close()

    again = sit_down("--continue")
    again.wait_for_text("› What is your name?", "stop:")
    again.type("Copy the code exactly.")
    again.press("C-j")
    again.type("x = 1")
    again.press("Enter")
    again.wait_for_text("› Copy the code exactly.", "  x = 1")


def test_the_screen_outlives_its_engine(sit_down):
    pane = sit_down()
    pane.wait_for_text("│ RAM")
    kill_host()
    pane.type("What is your name?")
    pane.press("Enter")
    pane.wait_for_text("tok ·", "stop:")
