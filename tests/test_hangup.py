"""What a terminal can do, and what happens when it or a standard stream is closed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from specchat.cli.chat import can_show_screen
from specchat.repl.line_input import is_capable_terminal
from specchat.terminal import HANGUP_EXIT_CODE, can_move_cursor, is_interactive
from tests.each_row import each_row
from tests.front import Bytes


@each_row(
    "term, no_colour, is_terminal, draws, edits_lines",
    [
        ("xterm", "", True, True, True),
        ("xterm", "1", True, True, False),
        ("dumb", "", True, False, False),
        (None, "", True, False, False),
        ("xterm", "", False, False, False),
    ],
)
def test_what_a_terminal_can_do_is_the_same_for_every_front_end(
    monkeypatch, term, no_colour, is_terminal, draws, edits_lines
):
    monkeypatch.delenv("TERM", raising=False)
    for name, value in {"TERM": term, "NO_COLOR": no_colour}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Bytes(is_terminal=is_terminal))

    assert (is_interactive(), can_move_cursor()) == (is_terminal, draws)
    assert (can_show_screen(), is_capable_terminal()) == (draws, edits_lines)


def test_a_screen_that_would_be_drawn_into_a_file_is_not_shown(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Bytes(is_terminal=stream != "stderr"))

    assert not can_show_screen()


def run_program(code: str, *, ignores_hangup: bool = False, **streams) -> subprocess.Popen[bytes]:
    before = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" if ignores_hangup else ""
    return subprocess.Popen([sys.executable, "-c", before + code], start_new_session=True, **streams)


WATCHED = (
    "import time\n"
    "from specchat.terminal import exit_when_terminal_closes\n"
    "exit_when_terminal_closes()\n"
    "print('ready', flush=True)\n"
    "while True: time.sleep(1)\n"
)


def test_a_closed_terminal_ends_a_program_that_draws_also_where_the_signal_is_ignored():
    master, slave = pty.openpty()
    program = run_program(WATCHED, ignores_hangup=True, stdin=slave, stdout=slave)
    os.close(slave)
    with os.fdopen(master, "rb", buffering=0) as terminal:
        # Until the end of the line: a terminal that closes earlier fails the program's write.
        assert b"ready" in terminal.readline()

    assert program.wait(120) == HANGUP_EXIT_CODE


def test_a_closed_terminal_ends_the_line_mode_without_a_traceback():
    master, slave = pty.openpty()
    code = (
        "import sys\n"
        "from specchat.cli import main\n"
        "from specchat.cli.main import cli, run\n"
        "import click\n"
        "@cli.command()\n"
        "def talk():\n"
        "    print('ready', flush=True)\n"
        "    sys.stdout.write('a begun line')\n"
        "    while sys.stdin.readline(): pass\n"
        "    while True: print('more', flush=True)\n"
        "cli.lazy_commands = {'talk': type('Later', (), {'load': lambda self: talk, 'help': ''})()}\n"
        "sys.exit(run(['talk']))\n"
    )
    program = run_program(code, ignores_hangup=True, stdin=slave, stdout=slave, stderr=subprocess.PIPE)
    os.close(slave)
    assert b"ready" in os.read(master, 100)

    os.close(master)

    _, said = program.communicate(timeout=180)
    assert (program.returncode, said) == (HANGUP_EXIT_CODE, b"")


MAIN = "import sys; sys.argv[1:] = ARGUMENTS; from specchat.cli.main import main; main()"


def run_with(closed: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    code = MAIN.replace("ARGUMENTS", repr(list(arguments)))
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code]
    return subprocess.run(command, capture_output=True, check=False, timeout=180)


def test_a_closed_stdout_is_one_line():
    ran = run_with(">&-", "--version")

    assert ran.returncode == 141
    assert ran.stderr.startswith(b"specchat: standard output is closed")
    assert ran.stderr.count(b"\n") == 1


@each_row("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_another_closed_stream_is_the_null_device(closed):
    ran = run_with(closed, "--version")

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"specchat ")


def test_a_closed_stdin_has_no_question():
    ran = run_with("<&-", "ask")

    assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)
