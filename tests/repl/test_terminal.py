"""The line mode on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from tests.host.conftest import FAKE_HOST
from tests.host.test_spawn import ROOT

CHAT = f"""if True:
    import fcntl, os, sys, termios
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.path.insert(0, {str(ROOT)!r})
    from specchat.host import spawn
    spawn.HOST_COMMAND = {FAKE_HOST!r}
    from specchat.cli.main import COMMANDS, LazyCommand, run
    COMMANDS["chat"] = LazyCommand("specchat.cli.chat:chat", "")
    sys.exit(run(["chat", "--lines", "--seed", "5"]))
"""


ASKS_FOR_CURSOR = "\x1b[6n"


class Terminal:
    """A program on a terminal of its own, and its output."""

    def __init__(self, **environment: str) -> None:
        self.master, slave = pty.openpty()
        self.program = subprocess.Popen(
            [sys.executable, "-c", CHAT], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **environment}
        )
        os.close(slave)
        self.shown, self.seen = "", 0

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, text: str) -> None:
        until = time.monotonic() + 120
        while (found := self.shown.find(text, self.seen)) < 0:
            readable, _, _ = select.select([self.master], [], [], max(0.0, until - time.monotonic()))
            assert readable, f"{text!r} did not come: {self.shown[-500:]!r}"
            read = os.read(self.master, 4096).decode(errors="replace")
            self.shown += read
            if ASKS_FOR_CURSOR in read:
                self.type("\x1b[1;1R")
        self.seen = found + len(text)

    def close(self) -> int:
        code = self.program.wait(120)
        os.close(self.master)
        return code


@pytest.mark.dear
@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}], ids=str)
def test_a_plain_terminal_is_never_drawn_on(runtime, environment):
    terminal = Terminal(**environment)
    terminal.expect("> ")
    terminal.type("count 3\n")
    terminal.expect(" tokens ·")
    terminal.type("/quit\n")

    assert 0 == terminal.close()
    assert "word0 word1 seed" in terminal.shown
    assert "\x1b" not in terminal.shown
    assert 1 == terminal.shown.count("word0")


def test_control_c_keeps_the_partial_answer_and_the_loop_continues(runtime):
    terminal = Terminal(TERM="dumb")
    terminal.expect("> ")
    terminal.type("slowly 100000\n")
    terminal.expect("word10 ")
    terminal.type("\x03")
    terminal.expect("stopped, the partial answer is kept")
    terminal.type("/show\n")
    terminal.expect("word10 ")
    terminal.type("\x04")

    assert 0 == terminal.close()


@pytest.mark.full
def test_loading_other_models_needs_a_yes(runtime):
    terminal = Terminal(TERM="dumb")
    terminal.expect("> ")
    terminal.type("/profile plain\n")
    terminal.expect("embedded (")
    terminal.expect("this loads other models; go on? [y/N] ")
    terminal.type("n\n")
    terminal.expect("the profile stays chat")
    terminal.type("/profile plain\n")
    terminal.expect("[y/N] ")
    terminal.type("y\n")
    terminal.expect("profile plain; other models")
    terminal.type("\x04")

    assert 0 == terminal.close()


@pytest.mark.full
def test_a_capable_terminal_completes_and_shows_the_status(runtime):
    terminal = Terminal(TERM="xterm", NO_COLOR="")
    terminal.expect("profile chat")
    terminal.type("/hel")
    terminal.expect("l")
    terminal.type("\t")
    terminal.expect("p")
    terminal.type("\r")
    terminal.expect("attaches the file")
    terminal.expect("profile chat")
    terminal.type("one\x0atwo\r")
    terminal.expect("you said 'one\\ntwo'")
    terminal.expect("\x1b[0;7m2 tokens")
    terminal.type("\x1b[A")
    terminal.expect("two")
    terminal.type("\x03")
    terminal.expect("\x1b[0;7m2 tokens")
    terminal.type("\x04")

    assert 0 == terminal.close()
