"""A conversation is summed up, and goes on in a copy that begins with the summary."""

from __future__ import annotations

import re

import pytest

from specchat.commands import compact as compacting
from specchat.commands.chat_state import ChatState
from specchat.commands.command_registry import run_line
from specchat.errors import UsageError
from specchat.host.client import Conversation, SessionRequest
from specchat.repl.loop import run_input_line
from tests.front import command


@pytest.fixture
def talk(runtime) -> ChatState:
    """Somebody who has asked twice."""
    talk = ChatState(Conversation(SessionRequest(profile="narrow")))  # 512 tokens
    run_input_line(talk, "write first")
    run_input_line(talk, "write second")
    return talk


@pytest.fixture
def asked(monkeypatch):
    """Let these be the questions of a `/compact`, and see with how many tokens they are to be answered."""
    limits, texts = list[int | None](), list[str]()
    ours = ChatState.make_bare_request

    def bare_request(talk, text, files=(), max_tokens=None):
        limits.append(max_tokens)
        return ours(talk, texts.pop(0) if texts else text, files, max_tokens)

    monkeypatch.setattr(ChatState, "make_bare_request", bare_request)
    return texts, limits


def questions(talk: ChatState) -> list[str]:
    return [turn.request["text"] for turn in talk.conversation.turns()]


def test_the_copy_begins_with_the_summary_and_the_whole_stays(talk, asked, capsys):
    texts, limits = asked
    whole = talk.conversation.session_id
    texts.append("write What was found: 42.")
    run_input_line(talk, "/compact")

    assert [512 // 8, 16] == limits
    assert [compacting.CONTINUE_PROMPT.format("What was found: 42.")] == questions(talk)
    assert f"this copy begins with the summary; /open {whole} is the whole conversation\n" in capsys.readouterr().err
    run_input_line(talk, f"/open {whole}")
    assert ["write first", "write second"] == questions(talk)


def test_the_conversation_continues_in_the_copy(talk):
    run_input_line(talk, "/compact")
    run_input_line(talk, "write third")

    assert 2 == len(questions(talk))
    assert "write third" == questions(talk)[-1]


def test_the_summary_is_requested_in_a_fork_with_all_turns(talk):
    reply = run_line(talk, "/compact")

    assert reply.request.text == compacting.SUMMARY_PROMPT
    assert ["write first", "write second"] == questions(talk)  # of the copy, which the model reads


def test_an_empty_conversation_cannot_be_summarized(runtime):
    with pytest.raises(UsageError, match="is empty"):
        run_line(ChatState(Conversation()), "/compact")


@pytest.mark.parametrize("question", ["crash", "write  ", "big 0"])
def test_without_a_summary_the_conversation_is_unchanged(talk, asked, capsys, question):
    whole = talk.conversation.session_id
    asked[0].append(question)
    run_input_line(talk, "/compact")

    assert whole == talk.conversation.session_id
    assert ["write first", "write second"] == questions(talk)
    assert "there is no summary; the conversation goes on as it was" in capsys.readouterr().err
    assert 1 == len(do_and_hear(talk, "/sessions", capsys).splitlines())


def test_if_the_request_does_not_fit_the_last_turns_are_dropped_and_reported(talk, asked, capsys):
    run_input_line(talk, "write third")
    run_input_line(talk, "write fourth")
    asked[0].extend(["fail", "fail", "write all but the last two"])
    run_input_line(talk, "/compact")

    assert "write all but the last two" not in questions(talk)
    assert "all but the last two" in questions(talk)[0]
    said = capsys.readouterr().err
    assert re.search(r"the whole conversation; the last 2 of its questions did not fit into the summary\n", said)


def test_where_not_even_one_turn_fits_nothing_changes(talk, asked):
    whole = talk.conversation.session_id
    asked[0].extend(["fail"] * 5)
    run_input_line(talk, "/compact")

    assert whole == talk.conversation.session_id
    assert 2 == len(questions(talk))


def test_compact_works_in_a_pipe(monkeypatch, runtime):
    ran = command(monkeypatch, "chat", stdin=b"write first\n/compact\ncount 3\n")

    assert 0 == ran.code
    assert "this copy begins with the summary" in ran.err
    assert b"turn 1" in ran.out  # the summary, and then this question


def do_and_hear(talk: ChatState, line: str, capsys) -> str:
    capsys.readouterr()
    run_input_line(talk, line)
    return capsys.readouterr().err
