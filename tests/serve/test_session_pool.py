"""The selection of the session that saves the most prefill, and its release."""

from __future__ import annotations

import asyncio
import time

import pytest

from specchat.chat.events import Finished, TextDelta, Totals
from specchat.chat.request import Request
from specchat.chat.tools import Tool, ToolCall, ToolResult
from specchat.chat.transcript import Exchange
from specchat.host.client import SessionRequest
from specchat.serve.engine_request import ConversationHistory, EngineRequest, SessionSettings
from specchat.serve.past_exchange import PastExchange, common_exchanges, common_prefix_length, with_call_ids
from specchat.serve.session_pool import AnswerStream, PooledSession, SessionPool

FIRST, SECOND = Exchange("one?", "yes, one"), Exchange("two?", "yes, two")


def session(*said: Exchange | None) -> PooledSession:
    session = PooledSession(SessionRequest())
    session.exchanges = [PastExchange(each) if each else None for each in said]
    return session


def request(question: str, *said: Exchange, system: str = "", tools: tuple[Tool, ...] = ()) -> EngineRequest:
    return EngineRequest(Request(question, tools=tools), ConversationHistory(said, SessionSettings(system)))


def called(arguments: str, *, call_id: str = "1", answer: str = "") -> Exchange:
    return Exchange("one?", answer, tool_calls=(ToolCall(call_id, "read", arguments),))


def answered(text: str, *, call_id: str = "1", is_error: bool = False) -> Exchange:
    return Exchange("", "done", tool_results=(ToolResult(call_id, "read", text, is_error),))


@pytest.mark.parametrize(
    ("ours", "theirs", "count"), [("", "x", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("ab", "abc", 2)]
)
def test_the_common_prefix_ends_at_the_first_difference(ours, theirs, count):
    assert count == common_prefix_length(ours, theirs)


def test_a_longer_common_history_has_a_higher_score():
    asked = request("?", FIRST, SECOND)

    assert (
        session(FIRST, SECOND).reuse_score(asked)
        > session(FIRST).reuse_score(asked)
        > session().reuse_score(asked)
        == 0
    )


def test_a_session_that_would_lose_more_than_it_reuses_has_a_negative_score():
    assert session(Exchange("other", "answer")).reuse_score(request("one?")) < 0
    assert session(FIRST, Exchange("a long", "answer" * 9)).reuse_score(request("?", FIRST)) < 0


def test_a_repeated_answer_uses_the_session_with_the_long_history():
    long = Exchange("one?", "yes" * 30)

    assert session(long, SECOND).reuse_score(request("two?", long)) > 0


def test_a_long_system_prompt_outweighs_a_short_history():
    assert session(FIRST).reuse_score(request("what?", system="be kind " * 9)) > 0


def test_a_failed_exchange_equals_no_exchange():
    said = (PastExchange(FIRST), PastExchange(SECOND))

    assert 1 == common_exchanges(session(FIRST, None).exchanges, said)
    assert session(None).reuse_score(request("\x01")) < 0


def test_common_tools_are_reused_and_others_lose_the_whole_session():
    tool, ours = Tool("read", "a long description " * 9), session(FIRST)
    ours.tools = (tool,)

    assert ours.reuse_score(request("what?", tools=(tool,))) > 0
    assert ours.reuse_score(request("two?", FIRST, tools=(Tool("write"),))) < 0
    assert ours.reuse_score(request("two?", FIRST)) < 0


@pytest.mark.parametrize(
    "theirs",
    [
        called('{"b":1,"a":[2]}'), called('{ "a": [2.0], "b": 1 }'), called('{"a": [2], "b": 1}', call_id="other"),
        called('{"a": [2], "b": 1}', answer="\n\n"),
    ],
)  # fmt: skip
def test_a_call_that_the_client_wrote_anew_is_the_same(theirs):
    assert PastExchange(called('{"a": [2], "b": 1}')).text == PastExchange(theirs).text


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (called('{"a": 1}'), called('{"a": true}')), (called('{"a": 1}'), called('{"a": "1"}')),
        (called("{broken"), called("{")), (called("{}"), Exchange("one?", "")),
        (called("{}"), called("{}", answer="so")), (answered("5"), answered("6")),
        (answered("5"), answered("5", is_error=True)), (answered("5"), Exchange("5", "done")),
    ],
)  # fmt: skip
def test_another_call_or_result_is_another_history(ours, theirs):
    assert PastExchange(ours).text != PastExchange(theirs).text


def test_texts_of_the_client_cannot_imitate_the_end_of_a_message():
    assert PastExchange(Exchange('a","b', "c")).text != PastExchange(Exchange("a", 'b","c')).text


def test_results_get_the_ids_that_the_calls_have_in_the_session():
    results = (ToolResult("x", "read", "5"), ToolResult("y", "read", "6"))

    assert ("a", "b") == tuple(
        result.call_id for result in with_call_ids(results, (ToolCall("a", "read", "{}"), ToolCall("b", "read", "{}")))
    )


def test_a_session_is_free_when_its_client_reads_the_end_of_the_answer(monkeypatch):
    call_in_loop = AnswerStream.call_in_loop

    def slowly(stream, *call):
        time.sleep(0.05)  # the event loop does all that it was told before
        call_in_loop(stream, *call)

    async def busy_at_the_end() -> int:
        pool = SessionPool(SessionRequest(), notify=print, count_event=lambda _event: None)
        assert 2 == len([event async for event in pool.stream_answer(request("one?"))])
        return pool.running_count

    monkeypatch.setattr(AnswerStream, "call_in_loop", slowly)
    monkeypatch.setattr(PooledSession, "stream_events", lambda *_: iter([TextDelta("yes"), Finished("stop", Totals())]))

    assert 0 == asyncio.run(busy_at_the_end())
