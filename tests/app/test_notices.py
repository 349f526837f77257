"""Notices after an answer: a nearly full context, and a request that does not fit."""

from __future__ import annotations

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.question import Question
from specchat.chat.events import Finished, Totals
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from tests.front import command, events_of


@pytest.fixture
def chat(runtime) -> ChatState:
    return ChatState(Conversation(SessionRequest(settings=read_settings("narrow"))))  # 512 tokens


def ask(chat: ChatState, question: str) -> tuple[str, ...]:
    return events_of(chat, Question(question))[-1].notices


def notes_while_it_fills(chat: ChatState, *fillings: int) -> list[int]:
    """The number of notices after answers that fill so many of the 512 tokens."""
    counts = list[int]()
    for tokens in fillings:
        chat.on_event(Finished("stop", Totals(prompt_tokens=tokens - 10, completion_tokens=10)))
        counts.append(len(chat.notices))
    return counts


def test_a_nearly_full_context_is_noted_once_while_it_fills(chat, monkeypatch):
    assert [0, 0, 1, 0, 0, 1] == notes_while_it_fills(chat, 50, 460, 470, 500, 50, 466)
    assert ("the context is 91% full; /compact summarizes this conversation and continues in a copy",) == chat.notices

    monkeypatch.setattr(Conversation, "window_tokens", 0)  # not known
    assert [0] == notes_while_it_fills(chat, 10**6)


def test_every_conversation_has_its_own_notices(chat):
    assert ask(chat, "count 236")[0].startswith("the context is 93% full")
    assert () == ask(chat, "count 237")
    chat.conversation.switch_session(chat.conversation.call("fork"))

    assert 1 == len(ask(chat, "count 236"))


def test_notices_belong_to_the_last_answer(chat):
    ask(chat, "count 236")
    assert () == ask(chat, "count 3")


def test_a_request_that_does_not_fit_after_others_suggests_compact(chat):
    too_long = "fail"

    assert () == ask(chat, too_long)
    assert ("/compact summarizes this conversation and continues in a copy",) == ask(chat, too_long)


def test_the_line_mode_prints_notices_after_the_numbers(runtime, monkeypatch):
    ran = command(monkeypatch, "chat", "-P", "narrow", stdin=b"count 236\ncount 3\n")

    assert 0 == ran.code
    assert 1 == ran.err.count("the context is 93% full; /compact")
    assert ran.err.index(" tokens ·") < ran.err.index("the context is")
