"""The verb `ask`: every front end reads the same files, and refuses the same ones in the same words."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from threading import Event

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.question import Question
from specchat.chat.events import Notice, TextDelta
from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.host.client import Conversation, SessionRequest
from specchat.tui.session_worker import SessionWorker
from specchat.tui.worker_messages import MessageQueue
from tests.front import command, events_of

Ask = Callable[[pytest.MonkeyPatch, Sequence[str]], str]  # the names in, what the user saw out

QUESTION = "replace nothing nothing"  # the fake engine says the texts of the files
GOOD = {
    "plain.txt": ("é1\n".encode(), "é1"),
    "marked.txt": (b"\xef\xbb\xbf" + "é2\n".encode(), "é2"),
    "two bytes.txt": (b"\xff\xfe" + "é3\n".encode("utf-16-le"), "é3"),
    "other-order.txt": (b"\xfe\xff" + "é4\n".encode("utf-16-be"), "é4"),
    "latin.txt": ("é5\n".encode("latin-1"), "é5"),
    "declared.py": ("# coding: iso-8859-15\n€6\n".encode("iso-8859-15"), "€6"),
}
BAD = {
    "binary.txt": (b"a\0b", "a binary file (it contains nul bytes); only text can be read"),
    "odd.txt": (b"\xff\x01\x02", "not text (byte 0 is not utf-8), nor in another known encoding"),
    "large.txt": (b"x" * (MAX_ATTACHED_BYTES + 1), "more than 32 mib; cut out the part that matters"),
    "gone.txt": (None, "gone.txt: there is no such file or folder; correct the name"),
}


def mentioned(names: Sequence[str]) -> str:
    return " ".join([QUESTION, *(f'@"{name}"' for name in names)])


def by_command(*arguments: str, has_options: bool = False) -> Ask:
    """A command, and what it printed for its user; the files are options or mentions."""

    def ask(patch: pytest.MonkeyPatch, names: Sequence[str]) -> str:
        options = [word for name in names for word in ("-f", name)]
        ran = command(patch, *arguments, *([QUESTION, *options] if has_options else [mentioned(names)]))
        return f"{ran.out.decode()}{ran.err}"

    return ask


def by_json(patch: pytest.MonkeyPatch, names: Sequence[str]) -> str:
    return _result(command(patch, "-p", mentioned(names), "--json").out.splitlines()[-1])


def _result(line: bytes) -> str:
    last = json.loads(line)
    return last["error"]["message"] if last["is_error"] else last["result"]


def by_line_mode(patch: pytest.MonkeyPatch, names: Sequence[str]) -> str:
    ran = command(patch, "chat", "--plain", stdin=f"{mentioned(names)}\n".encode())
    return f"{ran.out.decode()}{ran.err}"


def by_screen(_patch: pytest.MonkeyPatch, names: Sequence[str]) -> str:
    messages = MessageQueue(lambda: None)
    worker = SessionWorker(SessionRequest(), messages)
    worker.conversation.connect()
    worker.run_line(mentioned(names), Event())
    worker.close()
    return " ".join(str(getattr(each, "text", getattr(each, "message", ""))) for each in messages.take_all())


WAYS: dict[str, Ask] = {
    "ask -f": by_command("ask", has_options=True),
    "ask @": by_command("ask"),
    "-p": by_command("-p"),
    "-p -f": by_command("-p", has_options=True),
    "-p --json": by_json,
    "line mode": by_line_mode,
    "screen": by_screen,
}


@pytest.fixture
def folder(tmp_path, monkeypatch, runtime):
    monkeypatch.chdir(tmp_path)
    for name, (content, _) in {**GOOD, **BAD}.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    return tmp_path


def faults_of(ways: Mapping[str, Ask], patch: pytest.MonkeyPatch) -> list[str]:
    """The files that front ends read otherwise, or refuse in other words; plugins ask about theirs, too."""
    wrong = list[str]()
    for way, ask in ways.items():
        said = ask(patch, list(GOOD))
        wrong += [f"{way} {name}: {shown!r} is missing" for name, (_, shown) in GOOD.items() if shown not in said]
        for name, (_, shown) in BAD.items():
            said = ask(patch, [name])
            wrong += [f"{way} {name}: {said[:200]!r}, not {shown!r}"] if shown not in said.lower() else []
    return wrong


def test_every_front_end_reads_the_same_files_and_refuses_the_same(folder, monkeypatch):
    wrong = faults_of(WAYS, monkeypatch)

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("words", [["ask", QUESTION], ["-p", QUESTION]], ids=["ask", "-p"])
def test_a_pipe_of_the_shell_is_attached_with_all_of_its_text(monkeypatch, runtime, words):
    reading, writing = os.pipe()
    os.write(writing, b"in the pipe\n")
    os.close(writing)

    ran = command(monkeypatch, *words, "-f", f"/dev/fd/{reading}")

    os.close(reading)
    assert b"in the pipe" in ran.out


@pytest.fixture
def chat(runtime) -> ChatState:
    return ChatState(Conversation())


def test_the_last_event_has_the_answer_and_what_all_cost(chat):
    events = events_of(chat, Question("count 2", files=(Attachment("stdin", "x = 1"),)))
    answered = events[-1]

    assert answered.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert answered.summary.startswith(f"{answered.totals.completion_tokens} tokens")
    assert [event.text for event in events if isinstance(event, Notice)] == ["attached: stdin (about 2 tokens)"]


def test_an_at_in_a_text_that_nobody_typed_names_no_file(folder, monkeypatch):
    for arguments in (["ask"], ["-p", "-"]):
        ran = command(monkeypatch, *arguments, stdin=f"{QUESTION} @gone.txt".encode())
        assert ran.code == 0, ran.err
