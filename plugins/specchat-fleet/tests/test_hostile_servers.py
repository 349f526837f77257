"""A server that sends anything: an answer ends in one sentence, with bounded memory, and none waits without an end."""

from __future__ import annotations

import itertools
import json

import pytest
from fake_server import MODEL

from specchat.chat.events import Failed, Finished, TextDelta
from specchat.errors import ModelError
from specchat.profile.keys import Profile
from specchat_fleet.server_client import ServerTimeouts
from specchat_fleet.server_probe import probe_server
from specchat_fleet.server_session import ServerClient, connect_server
from tests import hostile_server
from tests.each_row import each_row
from tests.hostile_server import MIB, deep_json, drip, event, flood, head, hostile, page, redirect_loop

PATIENT = ServerTimeouts(page_seconds=120.0, metrics_seconds=120.0)  # for what ends by its bytes
QUICK = ServerTimeouts(120.0, 0.3, seconds_per_token=0.02, page_seconds=120.0, metrics_seconds=120.0)
QUICK_PAGES = ServerTimeouts(page_seconds=0.3)
QUICK_METRICS = ServerTimeouts(page_seconds=120.0, metrics_seconds=0.3)
MAX_TOKENS = 20
MAX_SENT_BYTES = 24 * MIB  # what a client may read, and what lies in the buffers of both sockets
MODELS = page(json.dumps({"data": [{"id": MODEL, "owned_by": "openai"}]}))
SSE = {"Content_Type": "text/event-stream"}


def delta(**fields: object) -> bytes:
    return event({"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


def finish(**fields: object) -> bytes:
    return event({"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **fields})


def stream(*events: bytes):
    return lambda: iter([head(**SSE), *events, b"data: [DONE]\n\n"])


def answer_of(reply, metrics=page("# no page"), timeouts=PATIENT):  # noqa: B008 (a constant)
    """The events of a question to a server with this reply, and the server."""
    with hostile({"/v1/models": MODELS, "/v1/chat": reply, "/metrics": metrics}) as server:
        profile = Profile().override({
            "models.backend": "openai", "models.url": f"{server.address}/v1", "models.target": MODEL,
            "limits.answer": MAX_TOKENS,
        })  # fmt: skip
        engine = connect_server(profile, timeouts=timeouts)
        try:
            events = [each for each in engine.create_session().ask("why?") if each != TextDelta("")]
        finally:
            engine.close()
    return events, server


TOO_LONG = "sent more than"
OTHER_API = "does not follow OpenAI's API"
TIME = "did not respond in time"
DRAFTS, DRAFTED = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"
WORD = delta(content="word ")


@each_row(
    "name, reply, said",
    [
        ("no header", hostile_server.hang, TIME),
        ("headers without an end", hostile_server.endless_headers, "no server answers"),
        ("headers byte by byte", hostile_server.dripping_headers, TIME),
        ("a body byte by byte", drip(b" ", **SSE), TIME),
        ("an event byte by byte", drip(b"x", b"data: ", **SSE), TIME),
        ("pings byte by byte", drip(b":\n\n", WORD, **SSE), TIME),
        ("pings without an end", flood(b": ping\n\n" * 1000, **SSE), TOO_LONG),
        ("text and then nothing", lambda: hostile_server.hang(head(**SSE) + WORD), TIME),
        ("a line of 60 MB", stream(delta(content="x" * 60_000_000), finish()), TOO_LONG),
        ("an event without an end", flood(b"data: x\n" * 8192, **SSE), TOO_LONG),
        ("lines without an event", flood(b"x" * 2**16, **SSE), TOO_LONG),
        ("a chunk without an end", hostile_server.endless_chunk, TOO_LONG),
        ("deltas without text", flood(delta(content="", padding="x" * 2000) * 30, **SSE), TOO_LONG),
        ("deltas without anything", flood(event({"choices": [], "x": "x" * 2000}) * 30, **SSE), TOO_LONG),
        ("a packed body", hostile_server.gzip_bomb, "packed"),
        ("redirects", redirect_loop, "refused with 307"),
        ("deep JSON", stream(event(deep_json(100_000)), finish()), OTHER_API),
        ("JSON of 10 million levels", stream(event(deep_json(10_000_000))), TOO_LONG),
        ("no UTF-8", stream(event(b'{"choices": "\xff\xfe"}')), OTHER_API),
        ("no objects", stream(event(5), event([]), finish()), OTHER_API),
        ("choices of another type", stream(event({"choices": 7})), OTHER_API),
        ("text that is a number", stream(delta(content=5), finish()), OTHER_API),
        ("thinking that is a list", stream(delta(reasoning_content=[1]), finish()), OTHER_API),
        ("a call with a list for a number", stream(delta(tool_calls=[{"index": []}]), finish()), OTHER_API),
        ("a call without a function", stream(delta(tool_calls=[{"function": 3}]), finish()), OTHER_API),
        ("a reason that is a list", stream(event({"choices": [{"delta": {}, "finish_reason": ["stop"]}]})), OTHER_API),
        ("an error of 60 MB", page(b"x" * 60_000_000, status="500 No"), TOO_LONG),
        ("an error without an end", flood(b"x" * 2**16, status="500 No"), TOO_LONG),
        ("a refusal of many lines", page("a\n" * 10_000, status="400 No"), "refused with 400"),
    ],
)  # fmt: skip
def test_what_a_server_sends_instead_of_an_answer_ends_in_one_sentence(name, reply, said):
    events, server = answer_of(reply, timeouts=QUICK if said == TIME else PATIENT)

    assert isinstance(events[-1], Failed), events[-1]
    assert (7, True) == (events[-1].exit_code, events[-1].message.isprintable())
    assert said in events[-1].message
    assert len(events[-1].message) < 500
    assert server.sent_bytes < MAX_SENT_BYTES


@each_row(
    "fields",
    [{"content": "a "}, {"reasoning_content": "a "}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}],
)
def test_an_answer_that_goes_on_beyond_its_tokens_ends_at_its_length(fields):
    events, server = answer_of(flood(delta(**fields), **SSE))

    assert isinstance(events[-1], Finished), events[-1]
    assert "length" == events[-1].finish_reason
    assert len(events) < 10 * MAX_TOKENS
    assert server.sent_bytes < MAX_SENT_BYTES


@each_row("usage", [
    "many", [1], {"prompt_tokens": "7", "completion_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": 2},
    {"prompt_tokens": 1, "completion_tokens": 10**400}, {"prompt_tokens": 1.5, "completion_tokens": None},
    {"prompt_tokens": True, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": "all"}},
])  # fmt: skip
def test_numbers_that_cannot_be_are_none(usage):
    events, _server = answer_of(stream(WORD, WORD, finish(usage=usage)))

    assert isinstance(events[-1], Finished), events[-1]
    totals = events[-1].totals
    assert (0 <= totals.completion_tokens <= 3, totals.cached_tokens) == (True, 0)


def test_half_a_character_is_shown_as_one_that_is_missing():
    events, _server = answer_of(stream(delta(content="a\ud800b"), finish()))

    assert ["a?b"] == [each.text for each in events if isinstance(each, TextDelta)]


@each_row(
    "name, metrics",
    [
        ("nothing", hostile_server.hang),
        ("byte by byte", drip(b"#")),
        ("headers byte by byte", hostile_server.dripping_headers),
        ("without an end", flood(b"# TYPE x counter\n" * 1000)),
        ("packed", hostile_server.gzip_bomb),
        ("other text", page(b"\xff" * 1000)),
        ("endless numbers", page(f"{DRAFTS} +Inf\n{DRAFTED} NaN\n")),
        ("too many digits", page("sglang:spec_verify_calls_total " + "9" * 5000)),
    ],
)  # fmt: skip
def test_no_question_waits_for_the_metrics_of_a_server_and_none_fails_by_them(name, metrics):

    timeouts = QUICK_METRICS if "byte" in name or name == "nothing" else PATIENT
    events, server = answer_of(stream(WORD, finish()), metrics, timeouts)

    assert isinstance(events[-1], Finished), events[-1]
    assert 0 == events[-1].totals.draft_tokens
    assert ["GET", "GET", "POST"] == [each.split()[0] for each in server.requests[:3]]  # models, metrics, question
    assert server.sent_bytes < MAX_SENT_BYTES


def test_a_page_that_did_not_come_is_not_asked_for_again():
    _events, server = answer_of(stream(WORD, finish()), hostile_server.hang, QUICK_METRICS)

    assert 1 == sum("/metrics" in each for each in server.requests)


@each_row(
    "name, models, said",
    [
        ("nothing", hostile_server.hang, TIME),
        ("byte by byte", drip(b" ", b"["), TIME),
        ("headers byte by byte", hostile_server.dripping_headers, TIME),
        ("headers without an end", hostile_server.endless_headers, "no server answers"),
        ("a page without an end", flood(b" " * 2**16), TOO_LONG),
        ("a chunk without an end", hostile_server.endless_chunk, TOO_LONG),
        ("a million models", page(json.dumps({"data": [{"id": f"model {n}"} for n in range(10**6)]})), TOO_LONG),
        ("a packed body", hostile_server.gzip_bomb, "packed"),
        ("deep JSON", page(deep_json(1_000_000)), "is not a server with OpenAI's API"),
        ("JSON of 10 million levels", page(deep_json(10_000_000)), TOO_LONG),
        ("no UTF-8", page(b"\xff\xfe"), "is not a server with OpenAI's API"),
        ("a list", page("[]"), "is not a server with OpenAI's API"),
        ("models that are texts", page('{"data": ["a"]}'), "is not a server with OpenAI's API"),
        ("no names", page('{"data": [{}]}'), "is not a server with OpenAI's API"),
        ("data that is a number", page('{"data": 3}'), "is not a server with OpenAI's API"),
    ],
)  # fmt: skip
def test_a_list_of_models_that_is_none_is_one_sentence(name, models, said):
    with hostile({"/v1/models": models}) as server:
        client = ServerClient(f"{server.address}/v1", timeouts=QUICK_PAGES if said == TIME else PATIENT)
        with pytest.raises(ModelError) as refused:
            probe_server(client)
        client.close()

    assert said in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    assert server.sent_bytes < MAX_SENT_BYTES


def test_a_probe_takes_no_name_number_or_version_that_no_profile_can_have():
    models = [
        {"id": "\x1b[2J"}, {"id": "x" * 10_000}, {"id": "fine", "owned_by": "vllm", "max_model_len": 10**400},
    ]  # fmt: skip
    replies = {
        "/v1/models": page(json.dumps({"data": models})),
        "/version": page(json.dumps({"version": "\x1b[2J"})),
        "/server_info": page(deep_json(100_000)),
        "/get_server_info": page(json.dumps({"version": "9" * 10_000})),
        "/metrics": page("# TYPE x counter\n" + "x{" * 1000),
    }
    with hostile(replies) as server:
        client = ServerClient(f"{server.address}/v1", timeouts=PATIENT)
        found = probe_server(client)
        client.close()

    assert [("fine", None)] == [(each.name, each.context_window) for each in found.models]
    assert "9" * 40 == found.version and not found.is_outdated


def test_a_missing_model_of_a_server_with_many_is_a_short_sentence():
    models = [{"id": f"model-{number}", "owned_by": "vllm"} for number in range(1000)]
    with hostile({"/v1/models": page(json.dumps({"data": models}))}) as server:
        profile = Profile().override({
            "models.backend": "vllm", "models.url": f"{server.address}/v1", "models.target": "gone",
        })  # fmt: skip
        with pytest.raises(ModelError, match=r"no model 'gone', only model-0, .*model-9 and 990 more;"):
            connect_server(profile, timeouts=PATIENT)


def test_an_answer_is_complete_when_its_server_says_so_and_stays():
    events, _server = answer_of(
        lambda: itertools.chain(stream(WORD, finish())(), itertools.repeat(b"")),
        timeouts=ServerTimeouts(read_seconds=3.0, seconds_per_token=10.0),
    )

    assert isinstance(events[-1], Finished), events[-1]
