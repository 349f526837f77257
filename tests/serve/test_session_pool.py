"""The selection of the session that saves the most prefill."""

from __future__ import annotations

import pytest

from specchat.chat.transcript import Exchange
from specchat.host.client import SessionRequest
from specchat.serve.engine_request import ConversationHistory, SessionSettings
from specchat.serve.session_pool import PooledSession, common_prefix_length

FIRST, SECOND = Exchange("one?", "yes, one"), Exchange("two?", "yes, two")


def session(*said: Exchange | None) -> PooledSession:
    session = PooledSession(SessionRequest())
    session.exchanges = list(said)
    return session


@pytest.mark.parametrize(
    ("ours", "theirs", "count"), [("", "x", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("ab", "abc", 2)]
)
def test_the_common_prefix_ends_at_the_first_difference(ours, theirs, count):
    assert count == common_prefix_length(ours, theirs)


def test_a_longer_common_history_has_a_higher_score():
    past = ConversationHistory((FIRST, SECOND))

    assert (
        session(FIRST, SECOND).reuse_score(past, "?")
        > session(FIRST).reuse_score(past, "?")
        > session().reuse_score(past, "?")
        == 0
    )


def test_a_session_that_would_lose_more_than_it_reuses_has_a_negative_score():
    assert session(Exchange("other", "answer")).reuse_score(ConversationHistory(), "one?") < 0
    assert session(FIRST, Exchange("a long", "answer" * 9)).reuse_score(ConversationHistory((FIRST,)), "?") < 0


def test_a_repeated_answer_uses_the_session_with_the_long_history():
    long = Exchange("one?", "yes" * 30)

    assert session(long, SECOND).reuse_score(ConversationHistory((long,)), "two?") > 0


def test_a_long_system_prompt_outweighs_a_short_history():
    assert session(FIRST).reuse_score(ConversationHistory(settings=SessionSettings("be kind " * 9)), "what?") > 0


def test_a_failed_exchange_equals_no_exchange():
    assert 1 == session(FIRST, None).common_exchanges((FIRST, SECOND))
    assert session(None).reuse_score(ConversationHistory(), "\x01") < 0
