"""`/inspect` in the line mode: the answer, each token marked with its drafter."""

from __future__ import annotations

import sys

import pytest

from specchat.app.command_registry import ChatState, run_line
from specchat.errors import UsageError
from specchat.host.client import Conversation
from tests.app.test_command_registry import do
from tests.front import Bytes, command

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def chat():
    return ChatState(Conversation())


def test_the_last_answer_is_drawn_with_marks(chat):
    do(chat, "guess 1")
    do(chat, "guess 3")

    said = do(chat, "/inspect")

    assert said.startswith("turn 2  guess 3\n")
    assert "[+word0 ]" in said


def test_an_earlier_answer_is_named_by_its_number(chat):
    do(chat, "guess 1")
    do(chat, "guess 3")

    assert do(chat, "/inspect 1").startswith("turn 1  guess 1\n")


@pytest.mark.parametrize("number", ["0", "2", "9"])
def test_an_answer_that_is_not_there_is_one_line(chat, number):
    do(chat, "guess 1")

    with pytest.raises(UsageError, match=f"this conversation has 1 answer; there is no {number}"):
        run_line(chat, f"/inspect {number}")


@pytest.mark.parametrize("argument", ["last", "-1", "1 2"])
def test_an_argument_that_is_not_a_number_is_an_error(chat, argument):
    do(chat, "guess 1")

    with pytest.raises(UsageError, match="the number of an answer"):
        run_line(chat, f"/inspect {argument}")


def test_without_answers_there_is_nothing_to_inspect(chat):
    with pytest.raises(UsageError, match="this conversation has no answers yet"):
        run_line(chat, "/inspect")


def test_on_a_terminal_it_is_coloured(chat, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", Bytes(is_terminal=True))
    do(chat, "guess 1")

    said = do(chat, "/inspect")

    assert "\x1b[" in said
    assert "[+word0 ]" not in said


def test_in_a_pipe_it_goes_to_stderr(monkeypatch):
    ran = command(monkeypatch, "chat", stdin=b"guess 1\n/inspect\n")

    assert "[+word0 ]" in ran.err
    assert b"[+word0 ]" not in ran.out
