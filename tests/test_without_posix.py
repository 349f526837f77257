"""What native Windows lacks is not needed to import specchat, nor to ask a question through the engine process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.hub import machine
from tests.each_row import each_row

ROOT = Path(__file__).parents[1]

IMPORTS = """
import importlib, pkgutil, sys

def import_all():
    import specchat
    for module in pkgutil.walk_packages(specchat.__path__, "specchat."):
        if module.name.rpartition(".")[2] != "__main__" and not module.name.startswith("specchat.forward.cuda.triton_"):
            importlib.import_module(module.name)
    return [name for name in sys.modules if name.startswith("specchat")]

for name in import_all():  # what other packages need of POSIX is loaded now
    del sys.modules[name]
from tests.windows import hide_posix
hide_posix()
print(len(import_all()))
"""

TALK = """
import sys
from tests.windows import hide_posix
hide_posix()
from specchat.chat.events import TextDelta
from specchat.host import spawn
from specchat.host.address import uses_unix_socket
from specchat.host.client import Conversation
from specchat.host.host_lock import running_host, stop_host
spawn.HOST_COMMAND = (sys.executable, "-m", "tests.host.fake_host", "--windows")
with Conversation() as talk:
    text = "".join(event.text for event in talk.ask("count 3") if isinstance(event, TextDelta))
    print(uses_unix_socket(), running_host() == talk.call("hello")["pid"], text.split()[:2])
print(not stop_host().was_killed, running_host())
"""


def run(program: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, **(environment or {})}, timeout=580,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.full
def test_every_module_is_imported_without_posix():
    assert int(run(IMPORTS)) > 200


def test_a_question_is_answered_without_posix(tmp_path):
    state = tmp_path / "s"
    state.mkdir(mode=0o700)

    assert run(TALK, {"SPECCHAT_RUNTIME": str(state)}).splitlines() == ["False True ['word0', 'word1']", "True None"]
    assert not (state / "host.sock").exists()
    assert not (state / "host.port").exists()


def test_the_main_memory_of_windows_is_read(monkeypatch):
    class Kernel:
        @staticmethod
        def GlobalMemoryStatusEx(status) -> int:  # noqa: N802 - its name in Windows
            numbers = status._obj
            assert numbers[0] == ctypes.sizeof(numbers) == 64
            numbers[1], numbers[2] = 16, 5
            return 1

    monkeypatch.setattr(ctypes, "windll", type("Libraries", (), {"kernel32": Kernel}), raising=False)

    assert machine._windows_memory() == (5, 16)


@each_row("name", ["getuid", "fork", "fchmod"])
def test_no_module_calls_posix_without_asking(name):
    """A call is in a line, or behind one, that looks for the name."""
    for path in (ROOT / "specchat").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert f"os.{name}(" not in text or f'hasattr(os, "{name}")' in text, path
