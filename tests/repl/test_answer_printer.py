"""Thoughts and progress go to stderr, as a terminal or a pipe shows them; the answer alone goes to stdout."""

from __future__ import annotations

import sys

import pytest

from specchat.chat.events import Finished, LoadingProgress, TextDelta, ThinkingDelta, Totals
from specchat.repl import temporary_line
from specchat.repl.answer_printer import AnswerPrinter
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
