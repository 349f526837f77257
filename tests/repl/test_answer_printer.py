"""Thoughts and progress go to stderr, as a terminal or a pipe shows them; the answer alone goes to stdout."""

from __future__ import annotations

import sys

import pytest

from specchat.chat.events import (
    Finished,
    LoadingProgress,
    Notice,
    PrefillProgress,
    TextDelta,
    ThinkingDelta,
    Totals,
    Waiting,
)
from specchat.cli.main import print_error
from specchat.repl import temporary_line
from specchat.repl.answer_printer import AnswerPrinter
from specchat.repl.interrupt import InterruptFlag
from specchat.repl.terminal_ui import terminal_edit_ui
from specchat.terminal import guarded_terminal
from tests.each_row import each_row
from tests.front import Bytes, command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)

EVENTS = [ThinkingDelta("a\x1b]52;c;x\x07"), ThinkingDelta("b"), TextDelta("c"), Finished("stop", Totals())]


@each_row("is_terminal, expected", [(True, "\x1b[2ma␛]52;c;x␇\x1b[22m\x1b[2mb\x1b[22m\n\n"), (False, "")])
def test_a_thought_is_dimmed_on_a_terminal_and_left_out_elsewhere(monkeypatch, is_terminal, expected):
    answer, talk = Bytes(), Bytes(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", answer)
    monkeypatch.setattr(sys, "stderr", talk)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with guarded_terminal():
        printing = AnswerPrinter()
        for event in EVENTS:
            printing.on_event(event)

    assert answer.content().decode() == "c"
    assert talk.content().decode() == expected


def test_what_is_said_beside_an_answer_is_broken_between_words_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    said = dict[bool, str]()
    for is_terminal in (True, False):
        monkeypatch.setattr(sys, "stderr", talk := Bytes(is_terminal=is_terminal))
        AnswerPrinter().on_event(Notice("a notice with a long line"))
        print_error("what happened, and what to do")
        said[is_terminal] = talk.content().decode()

    assert "a notice with a long\nline\nspecchat: what\nhappened, and what\nto do\n" == said[True]
    assert "a notice with a long line\nspecchat: what happened, and what to do\n" == said[False]


@pytest.mark.usefixtures("runtime")
def test_the_answer_of_a_command_has_no_thought_and_its_last_line_the_time(monkeypatch):
    ran = command(monkeypatch, "ask", "think 3")

    assert ran.out.decode() == "so it is\n"
    assert "thought for 3 s" in ran.err


@pytest.mark.usefixtures("runtime")
@each_row("flag, value", [("--think", "on"), ("--no-think", "off")])
def test_the_option_overrides_the_profile(monkeypatch, flag, value):
    ran = command(monkeypatch, "config", "show", flag)

    assert f'thinking = "{value}"' in ran.out.decode() or f'thinking = "{value}"' in ran.err, ran


def test_on_a_pipe_a_long_conversion_says_how_far_it_is_now_and_then(monkeypatch, capsys):
    now, printer = [100.0], AnswerPrinter()
    monkeypatch.setattr(temporary_line.time, "monotonic", lambda: now[0])

    for done in range(0, 101, 10):
        now[0] += 3
        printer.on_event(LoadingProgress("target", done, 100, "converting a.gguf"))

    assert capsys.readouterr().err.splitlines() == [
        "converting a.gguf…", "converting a.gguf: 40 %…", "converting a.gguf: 80 %…",
    ]  # fmt: skip


STAGES = [
    LoadingProgress("target", 0, 0), LoadingProgress("target", 0, 0, "compiling the CPU kernels"),
    LoadingProgress("target", 0, 9), Waiting("another answer"), PrefillProgress(0, 3000), PrefillProgress(1200, 3000),
    PrefillProgress(3000, 3000),
]  # fmt: skip
LINES = ["loading the target model…", "compiling the CPU kernels…", "waiting for another answer…"]


@each_row("front_end", ["answer", "edit"])
def test_on_a_pipe_each_stage_is_a_line_once_and_reading_only_where_it_takes_long(monkeypatch, capsys, front_end):
    now = [100.0]
    monkeypatch.setattr(temporary_line.time, "monotonic", lambda: now[0])
    on_event = AnswerPrinter().on_event if front_end == "answer" else terminal_edit_ui(InterruptFlag()).on_event
    for event in STAGES:
        on_event(event)
    short = capsys.readouterr().err.splitlines()
    for done in (10, 1200, 2900):
        now[0] += 6
        on_event(PrefillProgress(done, 3000))

    assert short == LINES
    assert capsys.readouterr().err.splitlines() == ["reading 3,000 tokens: 40 %…"]


def test_on_a_terminal_the_stage_is_one_line_that_is_gone_before_a_notice_and_the_answer(monkeypatch):
    answer, talk = Bytes(), Bytes(is_terminal=True)
    monkeypatch.setattr(sys, "stdout", answer)
    monkeypatch.setattr(sys, "stderr", talk)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with guarded_terminal():
        printing = AnswerPrinter()
        for event in (*STAGES[:6], Notice("a notice"), TextDelta("c")):
            printing.on_event(event)

    shown = talk.content().decode().split("\r\x1b[2K")
    assert shown[-3:] == ["reading 3,000 tokens…", "reading 3,000 tokens: 40 %…", "a notice\n"]
    assert answer.content() == b"c"
