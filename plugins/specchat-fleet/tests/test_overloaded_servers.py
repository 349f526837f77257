"""A server that is overloaded: a question goes again before the first text, after what the server asks to wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

from fake_server import MODEL, Served, serving
from openai import APIStatusError

from specchat.chat.events import Event, Failed, Finished, Routed, TextDelta, Waiting
from specchat.profile.keys import Profile
from specchat_fleet.retry import MAX_ASKED_SECONDS, MAX_JITTER, MAX_RETRIES, seconds_until_retry
from specchat_fleet.server_client import ServerTimeouts
from specchat_fleet.server_session import connect_server
from tests.each_row import each_row

AT_ONCE = ServerTimeouts(retry_seconds=0.0)


def answer_of(served: Served, question: str, timeouts: ServerTimeouts = AT_ONCE, **cancel: Callable[[Event], bool]):
    """The events of a question."""
    values = {"models.backend": "vllm", "models.url": served.url, "models.target": MODEL}
    engine, cancelled, events = connect_server(Profile().override(values), timeouts=timeouts), Flag(), list[Event]()
    try:
        for event in engine.create_session().ask(question, cancelled):
            events += [event] if event != TextDelta("") else []
            if any(is_it(event) for is_it in cancel.values()):
                cancelled.set()
    finally:
        engine.close()
    return events


@each_row("status", [429, 503])
def test_a_question_goes_again_to_a_server_that_has_no_time_for_it(status):
    with serving(busy_status=status) as served:
        events = answer_of(served, "busy 2")

    assert [Waiting, Waiting, Routed, TextDelta, Finished] == [type(event) for event in events]
    assert served.url in events[0].stage and "overloaded" in events[0].stage
    assert 3 == len(served.asked)


def test_a_server_that_stays_overloaded_is_one_line_after_some_tries():
    with serving(busy_status=503, busy_headers={"retry-after-ms": "1"}) as served:
        *_, failed = answer_of(served, "busy 1000")

    assert isinstance(failed, Failed) and "is overloaded" in failed.message and "come back later" in failed.message
    assert MAX_RETRIES + 1 == len(served.asked)


@each_row(
    "name, said",
    [
        ("no credit", {"busy_status": 429, "busy_code": "insufficient_quota"}),
        ("a long wait", {"busy_status": 429, "busy_headers": {"Retry-After": "3600"}}),
        ("no overload", {"busy_status": 500}),
        ("a wrong question", {"busy_status": 400}),
    ],
)
def test_what_no_short_wait_mends_is_asked_once(name, said):
    with serving(**said) as served:
        *_, failed = answer_of(served, "busy 1000")

    assert isinstance(failed, Failed) and 1 == len(served.asked)
    assert ("asks to wait 3600 s" in failed.message) == (name == "a long wait")


def test_no_question_goes_again_after_the_first_text():
    with serving() as served:
        *_, failed = answer_of(served, "cut 1")

    assert isinstance(failed, Failed) and 1 == len(served.asked)


def test_esc_ends_the_wait_for_an_overloaded_server():
    with serving(busy_headers={"Retry-After": "50"}) as served:
        events = answer_of(served, "busy 1000", on_wait=lambda event: isinstance(event, Waiting))

    assert isinstance(events[-1], Finished) and "cancelled" == events[-1].finish_reason
    assert 1 == len(served.asked)


def refused(status: int, **headers: str) -> APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response: Any = SimpleNamespace(status_code=status, headers=named, request=None)
    return APIStatusError("no", response=response, body=None)


SOON = format_datetime(datetime.now(UTC) + timedelta(seconds=3000))


@each_row(
    "name, error, retries, least",
    [
        ("the first wait", refused(429), 0, 0.5),
        ("twice as long", refused(429), 1, 1.0),
        ("twice again", refused(503), 2, 2.0),
        ("as it asks", refused(429, retry_after="7"), 0, 7.0),
        ("never shorter than ours", refused(429, retry_after="0"), 3, 4.0),
        ("the finer unit counts", refused(429, retry_after="1", retry_after_ms="2500"), 0, 2.5),
        ("a negative time", refused(429, retry_after="-5"), 0, 0.5),
        ("no time", refused(429, retry_after="soon"), 0, 0.5),
        ("a time that has passed", refused(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), 0, 0.5),
        ("too long", refused(429, retry_after=str(MAX_ASKED_SECONDS + 1)), 0, None),
        ("endless", refused(429, retry_after="inf"), 0, None),
        ("not a number", refused(429, retry_after="nan"), 0, 0.5),
        ("a date too far away", refused(429, retry_after=SOON), 0, None),
        ("tried often", refused(429), MAX_RETRIES, None),
        ("another error", refused(500, retry_after="1"), 0, None),
        ("no answer at all", TimeoutError(), 0, None),
    ],
)
def test_the_wait_is_what_the_server_asks_and_grows(name, error, retries, least):
    waits = [seconds_until_retry(error, retries, 0.5) for _ in range(20)]

    if least is None:
        assert {None} == set(waits)
    else:
        assert all(each is not None and least <= each <= least * (1 + MAX_JITTER) for each in waits)
