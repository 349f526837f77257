"""`specchat inspect`: what stands in the history, without an engine."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import asdict

import pytest

from specchat.acceptance_counts import Acceptance
from specchat.app.command_registry import ChatState
from specchat.chat.events import CommittedToken, StepDone, Totals
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.history.step_encoding import StepPacker
from specchat.host.client import Conversation
from specchat.host.spawn import history_path
from tests.app.test_command_registry import do
from tests.cli.conftest import own_runtime  # noqa: F401 (a fixture)
from tests.each_row import each_row
from tests.front import Ran, command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.test_terminal import HOSTILE, obeyed

TOTALS = Totals(
    completion_tokens=4,
    steps=2,
    draft_tokens=3,
    accepted_by_drafter={"suffix": 2},
    verify_seconds=0.5,
    plain_decode_seconds=0.8,
)
STEPS = (
    StepDone((), (), (CommittedToken(7, b"The", "target"),), 0.0, 0.25),
    StepDone(
        (1, 2, 3), (0, 1, 2),
        (
            CommittedToken(1, b" cat", "suffix"),
            CommittedToken(2, b"\n", "suffix"),
            CommittedToken(9, b" sat", "target"),
        ),
        0.125, 0.25, (b" cat", b"\n", b" ran"), ("suffix",) * 3,
    ),
)  # fmt: skip


COLOUR = re.compile(r"\x1b\[(?:\d+;)*3\d[;m]")  # of any palette: rich keeps the codes of a style from its first use

pytestmark = pytest.mark.usefixtures("own_runtime")


@pytest.fixture(autouse=True)
def colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def kept(own_runtime):  # noqa: F811
    """A conversation of two answers, the first without a record, and a copy of it."""
    recording = StepPacker()
    for step in STEPS:
        recording.add(step)
    with closing(HistoryWriter(history_path())) as history:
        thread = Thread("aaaa", "cats")
        for number, packed in enumerate((b"", recording.packed())):
            parent = str(number - 1) if number else None
            history.start_turn(thread, str(number), parent, {"text": f"question {number}"})
            answered = StoredAnswer("The cat\n sat", variant="auto", seed=5)
            history.finish_turn(str(number), answered, "stop", asdict(TOTALS), packed)
        history.add_thread(Thread("bbbb", "a copy", tip="1", forked_from="aaaa"))


def inspect(monkeypatch, *arguments: str, on_terminal: bool = False) -> Ran:
    return command(monkeypatch, "inspect", *arguments, on_terminal=on_terminal)


def test_of_an_answer_of_a_server_the_acceptance_by_depth_is_known(monkeypatch):
    totals = Totals(completion_tokens=4, acceptance=Acceptance((2, 1), (1, 1)))
    with closing(HistoryWriter(history_path())) as history:
        history.start_turn(Thread("cccc", "far away"), "0", None, {"text": "question"})
        history.finish_turn("0", StoredAnswer("The cat", variant="server", seed=5), "stop", asdict(totals), b"")

    assert "answer 1 has no steps; a server" in (said := inspect(monkeypatch).err)
    assert said.endswith("; acceptance by depth 50% 100%\n")


def test_without_a_history_there_is_nothing_to_look_into(monkeypatch):
    assert (inspect(monkeypatch).code, inspect(monkeypatch).err) == (
        2,
        "specchat: no conversations yet; 'specchat' begins one\n",
    )


@pytest.mark.usefixtures("kept")
def test_in_a_pipe_every_token_has_a_mark(monkeypatch):
    out = inspect(monkeypatch, "aaaa").out.decode()

    assert "[=The][+ cat][+\\n]\n[! sat]" in out
    assert "acceptance 67% (by depth 100% 100% 0%)  steps 2  2.0 tokens/step  156.2 ms/token x1.6" in out
    assert "by source: target 50% - suffix 50%" in out
    assert (
        'step 2/2  suffix  drafted 3 > accepted 2 > sampled " sat" (draft " ran") draft 125.0 ms - verify 250.0 ms'
        in out
    )
    assert out.isascii()


@pytest.mark.usefixtures("kept")
def test_on_a_terminal_it_is_coloured_and_without_colours_marked(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = inspect(monkeypatch, "aaaa", on_terminal=True).out.decode()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = inspect(monkeypatch, "aaaa", on_terminal=True).out.decode()

    assert COLOUR.search(coloured) and not COLOUR.search(plain)
    assert "\x1b" not in plain and "[+ cat]" in plain
    assert "[+ cat]" in inspect(monkeypatch, "aaaa", "--ascii", on_terminal=True).out.decode()


@pytest.mark.usefixtures("kept")
def test_a_copy_has_the_record_too_and_the_last_conversation_is_taken_if_none_is_said(monkeypatch):
    assert inspect(monkeypatch, "bbbb").out == inspect(monkeypatch, "aaaa").out == inspect(monkeypatch).out


def test_a_conversation_without_an_answer_has_nothing_to_look_into(monkeypatch):
    with closing(HistoryWriter(history_path())) as history:
        history.add_thread(Thread("cccc", "edits alone"))

    assert "specchat: conversation cccc has no answers yet\n" == inspect(monkeypatch).err


@pytest.mark.usefixtures("kept")
def test_a_picture_is_written(monkeypatch, tmp_path):
    ran = inspect(monkeypatch, "--svg", str(tmp_path / "a.svg"))

    assert (ran.code, ran.out) == (0, b"")
    assert "text-decoration: underline" in (tmp_path / "a.svg").read_text()
    assert inspect(monkeypatch, "--svg", str(tmp_path / "none" / "a.svg")).code == 2


@pytest.mark.usefixtures("kept")
@each_row(
    "arguments, said",
    [
        (("aaaa", "--turn", "1"), "answer 1 has no steps; a server or an older version wrote it, or it is empty\n"),
        (("aaaa", "--turn", "3"), "conversation aaaa has 2 answers; there is no 3"),
        (("zzzz",), "no conversation 'zzzz'"),
    ],
)
def test_what_is_not_there_is_said(monkeypatch, arguments, said):
    ran = inspect(monkeypatch, *arguments)

    assert ran.code == 2
    assert said in ran.err


def test_a_terminal_obeys_nothing_of_an_answer(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    recording = StepPacker()
    recording.add(StepDone((), (), (CommittedToken(7, HOSTILE.encode(), "target"),), 0.0, 0.25))
    with closing(HistoryWriter(history_path())) as history:
        history.start_turn(Thread("aaaa", HOSTILE), "0", None, {"text": HOSTILE})
        answered = StoredAnswer(HOSTILE, variant="auto", seed=5)
        history.finish_turn("0", answered, "stop", asdict(TOTALS), recording.packed())

    ran = inspect(monkeypatch, "aaaa", on_terminal=True)

    assert "good" in ran.out.decode()
    assert obeyed(ran) == []


def test_it_is_drawn_as_in_the_line_mode(runtime, monkeypatch):  # noqa: F811
    chat = ChatState(Conversation())
    do(chat, "guess 3")

    drawn = inspect(monkeypatch, chat.conversation.session_id).out.decode()

    assert do(chat, "/inspect") == drawn.rstrip("\n")
