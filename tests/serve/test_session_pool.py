"""Which conversation goes on: the one that saves the most reading."""

from __future__ import annotations

import pytest

from specchat.chat.transcript import Exchange
from specchat.host.client import SessionRequest
from specchat.serve.requests import ConversationHistory, SessionSettings
from specchat.serve.session_pool import PooledSession, common_prefix_length

FIRST, SECOND = Exchange("one?", "yes, one"), Exchange("two?", "yes, two")


def room(*said: Exchange | None) -> PooledSession:
    made = PooledSession(SessionRequest())
    made.exchanges = list(said)
    return made


@pytest.mark.parametrize(
    ("ours", "theirs", "count"), [("", "x", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("ab", "abc", 2)]
)
def test_letters_are_the_same_up_to_the_first_other_one(ours, theirs, count):
    assert count == common_prefix_length(ours, theirs)


def test_the_room_that_knows_more_gains_more():
    past = ConversationHistory((FIRST, SECOND))

    assert (
        room(FIRST, SECOND).reuse_score(past, "?")
        > room(FIRST).reuse_score(past, "?")
        > room().reuse_score(past, "?")
        == 0
    )


def test_a_room_that_would_forget_more_than_it_knows_loses():
    assert room(Exchange("other", "answer")).reuse_score(ConversationHistory(), "one?") < 0
    assert room(FIRST, Exchange("a long", "answer" * 9)).reuse_score(ConversationHistory((FIRST,)), "?") < 0


def test_an_answer_is_drawn_again_where_the_long_past_is_known():
    long = Exchange("one?", "yes" * 30)

    assert room(long, SECOND).reuse_score(ConversationHistory((long,)), "two?") > 0


def test_a_long_system_is_worth_more_than_a_short_past():
    assert room(FIRST).reuse_score(ConversationHistory(settings=SessionSettings("be kind " * 9)), "what?") > 0


def test_what_came_to_nothing_is_like_nothing_that_is_asked():
    assert 1 == room(FIRST, None).common_exchanges((FIRST, SECOND))
    assert room(None).reuse_score(ConversationHistory(), "\x01") < 0
