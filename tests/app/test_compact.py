"""`/compact`: the conversation continues in a copy that begins with a summary."""

from __future__ import annotations

import re

import pytest

from specchat.app import compact as compacting
from specchat.app.chat_state import ChatState
from specchat.app.command_registry import run_line
from specchat.chat.request import Request
from specchat.errors import UsageError
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from tests.front import command, type_line


@pytest.fixture
def chat(runtime) -> ChatState:
    """A conversation with two turns."""
    chat = ChatState(Conversation(SessionRequest(settings=read_settings("narrow"))))  # 512 tokens
    type_line(chat, "write first")
    type_line(chat, "write second")
    return chat


@pytest.fixture
def replaced_requests(monkeypatch):
    """Replace the requests of a `/compact`, and record their token limits."""
    limits, texts = list[int | None](), list[str]()

    def request(text, max_tokens):
        limits.append(max_tokens)
        return Request(texts.pop(0) if texts else text, max_tokens=max_tokens)

    monkeypatch.setattr(compacting, "Request", request)
    return texts, limits


def questions(chat: ChatState) -> list[str]:
    return [turn.request["text"] for turn in chat.conversation.turns()]


def test_the_copy_begins_with_the_summary_and_the_whole_stays(chat, replaced_requests, capsys):
    texts, limits = replaced_requests
    whole = chat.conversation.session_id
    texts.append("write What was found: 42.")
    type_line(chat, "/compact")

    assert [512 // 8, 16] == limits
    assert [compacting.CONTINUE_PROMPT.format("What was found: 42.")] == questions(chat)
    assert f"this copy begins with the summary; /open {whole} is the whole conversation\n" in capsys.readouterr().err
    type_line(chat, f"/open {whole}")
    assert ["write first", "write second"] == questions(chat)


def test_the_conversation_continues_in_the_copy(chat):
    type_line(chat, "/compact")
    type_line(chat, "write third")

    assert 2 == len(questions(chat))
    assert "write third" == questions(chat)[-1]


def test_the_summary_is_requested_in_a_fork_with_all_turns(chat):
    reply = run_line(chat, "/compact")

    assert reply.request.text == compacting.SUMMARY_PROMPT
    assert ["write first", "write second"] == questions(chat)  # of the copy, which the model reads


def test_an_empty_conversation_cannot_be_summarized(runtime):
    with pytest.raises(UsageError, match="is empty"):
        run_line(ChatState(Conversation()), "/compact")


@pytest.mark.parametrize("question", ["crash", "write  ", "big 0"])
def test_without_a_summary_the_conversation_is_unchanged(chat, replaced_requests, capsys, question):
    whole = chat.conversation.session_id
    replaced_requests[0].append(question)
    type_line(chat, "/compact")

    assert whole == chat.conversation.session_id
    assert ["write first", "write second"] == questions(chat)
    assert "there is no summary; the conversation goes on as it was" in capsys.readouterr().err
    assert 1 == len(run_and_capture(chat, "/sessions", capsys).splitlines())


def test_if_the_request_does_not_fit_the_last_turns_are_dropped_and_reported(chat, replaced_requests, capsys):
    type_line(chat, "write third")
    type_line(chat, "write fourth")
    replaced_requests[0].extend(["fail", "fail", "write all but the last two"])
    type_line(chat, "/compact")

    assert "write all but the last two" not in questions(chat)
    assert "all but the last two" in questions(chat)[0]
    said = capsys.readouterr().err
    assert re.search(r"the whole conversation; the last 2 of its questions did not fit into the summary\n", said)


def test_where_not_even_one_turn_fits_nothing_changes(chat, replaced_requests):
    whole = chat.conversation.session_id
    replaced_requests[0].extend(["fail"] * 5)
    type_line(chat, "/compact")

    assert whole == chat.conversation.session_id
    assert 2 == len(questions(chat))


def test_compact_works_in_a_pipe(monkeypatch, runtime):
    ran = command(monkeypatch, "chat", stdin=b"write first\n/compact\ncount 3\n")

    assert 0 == ran.code
    assert "this copy begins with the summary" in ran.err
    assert b"turn 1" in ran.out  # the summary, and then this question


def run_and_capture(chat: ChatState, line: str, capsys) -> str:
    capsys.readouterr()
    type_line(chat, line)
    return capsys.readouterr().err
