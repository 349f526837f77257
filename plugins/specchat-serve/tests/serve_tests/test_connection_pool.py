"""The connections of a server to the host: which one answers, and when it is free again."""

from __future__ import annotations

import asyncio
import time

from specchat.chat.events import Event, Finished, StepDone, TextDelta, Totals
from specchat.chat.request import Request
from specchat.host.client import SessionRequest
from specchat_serve.connection_pool import AnswerStream, ConnectionPool, PooledConnection
from specchat_serve.engine_request import EngineRequest
from tests.test_one_answer_text import END, EVENTS


def test_one_connection_answers_all_that_do_not_come_at_once(monkeypatch):
    used = list[PooledConnection]()
    monkeypatch.setattr(
        PooledConnection,
        "stream_events",
        lambda connection, *_: used.append(connection) or iter([Finished("stop", Totals())]),
    )

    async def ask_with(*systems: str) -> None:
        pool = ConnectionPool(SessionRequest(), notify=print, count_event=lambda _event: None)
        for system in systems:
            request = EngineRequest(Request("?"), changes={"prompt.system": system})
            assert [event async for event in pool.stream_answers(request)]

    asyncio.run(ask_with("a", "b", "a"))

    assert 1 == len(set(used))


def test_a_connection_is_free_when_its_client_reads_the_end_of_the_answer(monkeypatch):
    call_in_loop = AnswerStream.call_in_loop

    def slowly(stream, *call):
        time.sleep(0.05)  # the event loop does all that it was told before
        call_in_loop(stream, *call)

    async def busy_at_the_end() -> int:
        pool = ConnectionPool(SessionRequest(), notify=print, count_event=lambda _event: None)
        assert 2 == len([event async for event in pool.stream_answers(EngineRequest(Request("one?")))])
        return pool.running_count

    monkeypatch.setattr(AnswerStream, "call_in_loop", slowly)
    monkeypatch.setattr(
        PooledConnection, "stream_events", lambda *_: iter([TextDelta("yes"), Finished("stop", Totals())])
    )

    assert 0 == asyncio.run(busy_at_the_end())


def test_repeats_at_the_end_of_an_answer_are_sent_and_not_counted(monkeypatch):
    counted = list[Event]()
    monkeypatch.setattr(PooledConnection, "stream_events", lambda *_: iter(EVENTS))

    async def events_sent() -> list[Event]:
        pool = ConnectionPool(SessionRequest(), notify=print, count_event=counted.append)
        return [event async for event in pool.stream_answers(EngineRequest(Request("?")))]

    assert asyncio.run(events_sent()) == list(EVENTS)
    assert [step.tokens for step in counted if isinstance(step, StepDone)] == [2, 1]
    assert counted[-1] is END
