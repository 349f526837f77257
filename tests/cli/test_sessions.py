"""`specchat sessions`: what stands in the history, without an engine."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from specchat.chat.events import CommittedToken, StepDone, Totals
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.history.step_encoding import StepPacker
from specchat.host.spawn import history_path
from tests.front import command

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


pytestmark = pytest.mark.usefixtures("own_runtime")


@pytest.fixture
def kept(own_runtime):
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


@pytest.mark.usefixtures("kept")
def test_conversations_are_listed_and_searched(monkeypatch):
    lines = command(monkeypatch, "sessions", "list").out.decode().splitlines()
    found = command(monkeypatch, "sessions", "list", "question", "0").out.decode().splitlines()

    assert sorted((line.split()[0], line.split("  ")[-1]) for line in lines) == [("aaaa", "cats"), ("bbbb", "a copy")]
    assert [row.split()[0] for row in found] == ["aaaa"]


def test_chats_are_listed_before_questions_with_model_folder_and_length(monkeypatch):
    home = str(Path.home())
    chat = Thread("aaaa", "cats", folder=f"{home}/work")
    with closing(HistoryWriter(history_path())) as history:
        history.store_settings("aaaa", {"profile": {"models": {"target": "HuggingFaceTB/SmolLM2-135M"}}})
        for turn, parent in (("1", None), ("2", "1")):
            history.start_turn(chat, turn, parent, {"text": "why"})
        history.start_turn(Thread("bbbb", "dogs", kind="ask", folder="/elsewhere"), "3", None, {"text": "why"})
        history.store_settings("cccc", {"profile": {"models": {"target": "/models/tiny.gguf"}}})
        history.start_turn(Thread("cccc", "birds"), "4", None, {"text": "why"})
        history.start_turn(Thread("dddd", "an edit", kind="edit"), "5", None, {"text": "why"})

    listed = command(monkeypatch, "sessions", "list").out.decode().splitlines()

    assert [[field for n, field in enumerate(line.split("  ")) if n != 1] for line in listed] == [
        ["cccc", "chat", "tiny.gguf", "1 question", "birds"],
        ["aaaa", "chat", "SmolLM2-135M", "~/work", "2 questions", "cats"],
        ["bbbb", "ask", "/elsewhere", "1 question", "dogs"],
    ]


@pytest.mark.usefixtures("kept")
def test_a_conversation_is_exported_in_both_formats(monkeypatch, tmp_path):
    as_text = command(monkeypatch, "sessions", "export", "aa").out.decode()

    assert as_text.startswith("# cats\n\n> question 0\n\nThe cat\n sat\n")
    first = command(monkeypatch, "sessions", "export", "aaaa", "-o", str(tmp_path / "a.md"))
    second = command(monkeypatch, "sessions", "export", "aaaa", "-o", str(tmp_path / "a.md"))
    assert (first.code, (tmp_path / "a.md").read_text()) == (0, as_text)
    assert (second.code, "exists already" in second.err) == (2, True)

    command(monkeypatch, "sessions", "export", "aaaa", "-o", str(tmp_path / "a.json"))
    as_json = json.loads((tmp_path / "a.json").read_text())
    assert [(turn["question"], turn["answer"], turn["seed"]) for turn in as_json["turns"]] == [
        (f"question {number}", "The cat\n sat", 5) for number in (0, 1)
    ]
    assert as_json["turns"][1]["totals"]["completion_tokens"] == 4


@pytest.mark.usefixtures("kept")
def test_a_conversation_that_nobody_knows_is_not_exported(monkeypatch):
    assert command(monkeypatch, "sessions", "export", "zzzz").code == 2
