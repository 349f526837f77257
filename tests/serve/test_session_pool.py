"""The connections of a server to the host: which one answers, and when it is free again."""

from __future__ import annotations

import asyncio
import time

from specchat.chat.events import Finished, TextDelta, Totals
from specchat.chat.request import Request
from specchat.host.client import SessionRequest
from specchat.serve.engine_request import ConversationHistory, EngineRequest, SessionSettings
from specchat.serve.session_pool import AnswerStream, PooledSession, SessionPool


def request(question: str, system: str = "") -> EngineRequest:
    return EngineRequest(Request(question), ConversationHistory((), SessionSettings(system)))


def test_a_session_answers_with_its_settings_only_and_the_oldest_goes_for_another(monkeypatch):
    used, closed = list[PooledSession](), list[PooledSession]()
    monkeypatch.setattr(
        PooledSession, "stream_events", lambda session, *_: used.append(session) or iter([Finished("stop", Totals())])
    )
    monkeypatch.setattr(PooledSession, "close", lambda session: closed.append(session) or None)

    async def ask_with(*systems: str) -> None:
        pool = SessionPool(SessionRequest(), notify=print, count_event=lambda _event: None, max_sessions=2)
        for system in systems:
            assert [event async for event in pool.stream_answer(request("?", system))]

    asyncio.run(ask_with("a", "b", "a", "c", "a"))

    first, second, again, third, last = used
    assert first is again is last
    assert len({first, second, third}) == 3
    assert closed == [second]


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
