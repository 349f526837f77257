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
PATIENCE_SECONDS = 120.0

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here"),
]


class Pane:
    """A terminal in a tmux server of its own: a server that is ending refuses new sessions."""

    def __init__(self, folder: Path, name: str, *arguments: str, size: tuple[int, int] = (100, 30)) -> None:
        self.socket = str(folder / name)
        environment = {**os.environ, "SPECCHAT_CONFIG": str(folder), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        environment.pop("TMUX", None)
        command = [sys.executable, "-c", PROGRAM, *arguments]
        columns, rows = map(str, size)
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, "-c", str(ROOT), *command, environment=environment)
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

    def open_pane(*arguments: str, size: tuple[int, int] = (100, 30)) -> Pane:
        panes.append(Pane(runtime, f"tmux-{len(panes)}", *arguments, size=size))
        return panes[-1]

    yield open_pane
    for pane in panes:
        pane.close()


def test_the_embedded_model_answers_with_numbers_and_is_continued(sit_down):
    pane = sit_down("--max-tokens", "64")
    pane.wait_for_text("Ask something below", "embedded · ready")
    pane.type("What is your name?")
    pane.press("Enter")
    pane.wait_for_text("› What is your name?", " tokens · ", " tokens/s · ")

    pane.press("C-q")
    pane.ends()
    pane.close()

    again = sit_down("--continue")
    again.wait_for_text("› What is your name?", " tokens · ")
    again.type("Copy the code exactly.")
    again.press("C-j")
    again.type("x = 1")
    again.press("Enter")
    again.wait_for_text("› Copy the code exactly.", "  x = 1")


def test_the_screen_outlives_its_engine(sit_down):
    pane = sit_down()
    pane.wait_for_text("embedded · ready")
    kill_host()
    pane.type("What is your name?")
    pane.press("Enter")
    pane.wait_for_text(" tokens · ")


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (160, 50)], ids=str)
def test_three_sizes_from_the_welcome_to_the_line_that_resumes(sit_down, size):
    pane = sit_down("--max-tokens", "16", size=size)
    pane.wait_for_text("specchat 0.", "model    embedded", "folder   ", "Ask something below, such as: ", "ready")
    pane.type("What is your name?")
    pane.press("Enter")
    pane.wait_for_text("› What is your name?", " tokens · ")
    pane.press("F7")
    pane.wait_for_text(" tokens/step")
    pane.type("/help")
    pane.press("Enter")
    pane.wait_for_text("This answer", "/retry")
    pane.type("/quit")
    pane.press("Enter")
    pane.wait_for_text("go on later: specchat -r ")
    identifier = pane.shown.partition("specchat -r ")[2].split()[0]
    pane.ends()
    pane.close()

    again = sit_down("-r", identifier, size=size)
    again.wait_for_text("› What is your name?", " tokens · ")
