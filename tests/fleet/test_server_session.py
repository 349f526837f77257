"""A conversation with a server: what is asked, what is heard, and what happens when the server does not behave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event as Flag

import pytest

from specchat.chat.answer_format import AnswerFormat
from specchat.chat.events import Event, Failed, Finished, Routed, TextDelta
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.errors import ModelError
from specchat.fleet.server_client import DEFAULT_TIMEOUTS, ServerTimeouts
from specchat.fleet.server_session import ServerEngine, ServerSession, connect_server
from specchat.profile import Profile
from tests.fleet.pages import VLLM
from tests.fleet.serving import MODEL, Served, serving


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


def profile(url: str, **values: object) -> Profile:
    return Profile().override({"models.backend": "vllm", "models.url": url, "models.target": MODEL, **values})


OPENED: list[ServerEngine] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def engine(url: str, patience: ServerTimeouts = DEFAULT_TIMEOUTS, **values: object) -> ServerEngine:
    OPENED.append(connect_server(profile(url, **values), timeouts=patience))
    return OPENED[-1]


def ask(session: ServerSession, question: str | Request) -> list[Event]:
    return [event for event in session.ask(question) if event != TextDelta("")]


def said(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def failure(events: list[Event]) -> str:
    assert isinstance(events[-1], Failed)
    assert "\n" not in events[-1].message and "--profile chat" in events[-1].message and events[-1].exit_code == 7
    return events[-1].message


def test_an_answer_comes_as_the_events_of_our_own_engine(served):
    session = engine(served.url).create_session()

    routed, *texts, finished = ask(session, "count 3")

    assert isinstance(routed, Routed) and routed.variant == "server" and served.url in routed.reason
    assert [text.text for text in texts if isinstance(text, TextDelta)] == ["word0 ", "word1 ", "word2 "]
    assert isinstance(finished, Finished) and finished.finish_reason == "stop"
    assert (finished.totals.completion_tokens, finished.totals.prompt_tokens, finished.totals.cached_tokens) == (
        3,
        7,
        4,
    )
    assert finished.totals.ttft_seconds > 0


def test_a_server_that_counts_no_tokens_is_taken_to_send_one_in_each_chunk(served):
    *_, finished = ask(engine(served.url).create_session(), "bare 3")

    assert isinstance(finished, Finished) and finished.totals.completion_tokens == 3


def test_the_server_is_told_the_whole_conversation_and_how_to_sample(served):
    values = {"sampling.top_k": 5, "sampling.temperature": 0.5, "sampling.seed": 3, "prompt.system": "be brief"}
    turns = [Turn("hello", answer="hi")]
    request = Request("echo this", files=(Attachment("a.py", "x = 1"),), max_tokens=9, stop=("END",))

    asked = json.loads(said(ask(engine(served.url, **values).create_session(turns), request)))

    assert [message["role"] for message in asked["messages"]] == ["system", "user", "assistant", "user"]
    assert asked["messages"][1:3] == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    assert "x = 1" in asked["messages"][-1]["content"]
    wanted = {"max_tokens": 9, "temperature": 0.5, "top_k": 5, "seed": 3, "stop": ["END"], "model": MODEL}
    assert {name: asked[name] for name in wanted} == wanted
    assert "min_p" not in asked  # nobody wants another than the usual


def test_turns_are_remembered_and_can_be_taken_back(served):
    session = engine(served.url).create_session()
    ask(session, "count 2")
    ask(session, "count 1")

    session.turns = session.turns[:-1]
    ask(session, "count 3")

    assert [message["content"] for message in served.asked[-1]["messages"]] == ["count 2", "word0 word1 ", "count 3"]


@pytest.mark.parametrize(
    ("backend", "structure", "told"),
    [
        ("vllm", AnswerFormat.parse("regex", "a+"), {"structured_outputs": {"regex": "a+"}}),
        ("sglang", AnswerFormat.parse("choices", ["yes", "no"]), {"regex": "yes|no"}),
        (
            "openai",
            AnswerFormat.parse("schema", {"type": "object"}),
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
    ],
)
def test_the_form_of_an_answer_is_asked_for_in_the_words_of_the_server(backend, structure, told):
    with serving(owner=backend) as served:
        session = engine(served.url, **{"models.backend": backend}).create_session()
        asked = json.loads(said(ask(session, Request("echo", answer_format=structure))))

    assert told.items() <= asked.items()


def test_a_form_that_a_server_cannot_be_asked_for_is_refused(served):
    session = engine(served.url, **{"models.backend": "openai"}).create_session()

    *_, failed = ask(session, Request("echo", answer_format=AnswerFormat.parse("regex", "a")))

    assert isinstance(failed, Failed) and failed.exit_code == 2 and served.asked == []


@pytest.mark.parametrize("question", ["silent", "slowly 1000"])
def test_a_cancelled_answer_hangs_up_at_once_and_keeps_what_was_said(served, question):
    session, cancelled, events = engine(served.url).create_session(), Flag(), []

    for event in session.ask(question, cancelled):
        events.append(event)
        if isinstance(event, TextDelta) and served.asked:
            cancelled.set()

    assert isinstance(events[-1], Finished) and events[-1].finish_reason == "cancelled"
    assert session.turns[-1].answer == said(events)
    assert served.left.wait(10)


def test_an_answer_that_is_waited_for_does_not_hold_up_another(served):
    shared, events = engine(served.url), list[Event]()
    waiting, writing = shared.create_session().ask("silent"), shared.create_session().ask("count 3")

    while len(served.asked) < 2 or not isinstance(events[-1], Finished):
        assert not isinstance(next(waiting), Finished | Failed)
        events += [event for event in [next(writing, None)] if event]

    assert said(events) == "word0 word1 word2 "
    waiting.close()
    assert served.left.wait(10)


def test_a_server_that_is_down_is_told_before_anything_is_asked():
    with serving() as gone:
        url = gone.url

    with pytest.raises(ModelError, match=r"no server answers at .*; --profile chat"):
        engine(url)


def test_a_server_that_goes_down_between_two_questions(served):
    with serving() as other:
        session = engine(other.url).create_session()

    assert "no server answers" in failure(ask(session, "count 1"))
    assert session.turns == []


def test_a_connection_that_is_lost_before_the_first_word_is_made_again(served):
    events = ask(engine(served.url).create_session(), "late cut")

    assert said(events) == "word0 " and len(served.asked) == 2


def test_a_connection_that_is_lost_in_the_middle_is_told_and_what_was_said_is_kept(served):
    session = engine(served.url).create_session()

    events = ask(session, "cut 3")

    assert "disconnected during the answer" in failure(events)
    assert session.turns[-1].answer == said(events) == "word0 word1 word2 "
    assert not session.turns[-1].is_finished and len(served.asked) == 1


def test_a_server_that_is_silent_for_too_long_is_given_up(served):
    session = engine(served.url, ServerTimeouts(read_seconds=0.05)).create_session()

    assert "did not respond in time" in failure(ask(session, "silent"))


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("refuse 500", "refused with 500: something is wrong"),
        ("refuse 429", "is overloaded: something is wrong"),
        ("refuse 401", "needs an API key"),
        ("broken", "does not follow OpenAI's API (JSONDecodeError)"),
        ("nothing", "sent no valid answer"),
    ],
)
def test_what_a_server_does_wrong_is_told_in_one_line(served, question, told):
    assert told in failure(ask(engine(served.url).create_session(), question))


def test_a_model_that_the_server_does_not_have_is_told_with_those_it_has(served):
    with pytest.raises(ModelError, match=f"no model 'org/other', only {MODEL}"):
        engine(served.url, **{"models.target": "org/other"})


def test_a_server_that_lists_no_such_model_may_still_have_it():
    with serving(owner="somebody") as served:
        session = engine(served.url, **{"models.backend": "openai", "models.target": "org/other"}).create_session()

        assert "does not have this: The model `org/other` does not exist." in failure(ask(session, "count 1"))


def test_a_server_of_another_kind_is_told_by_its_name():
    with serving(owner="sglang") as served, pytest.raises(ModelError, match='is sglang: set backend = "sglang"'):
        engine(served.url)


def test_the_key_is_read_from_a_file(served, tmp_path):
    (tmp_path / "key").write_text("secret\n")

    assert engine(served.url, **{"models.api_key_file": str(tmp_path / "key")}).client.api_key == "secret"
    with pytest.raises(ModelError, match=r"api_key_file .* is not readable"):
        engine(served.url, **{"models.api_key_file": str(tmp_path / "none")})


def test_what_the_server_guessed_is_in_the_totals_when_it_tells_it_with_the_answer():
    told = {"num_spec_steps": 4, "num_draft_tokens": 12, "num_accepted_draft_tokens": 6}
    with serving(metrics={"speculative_decoding": told}) as served:
        *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert isinstance(finished, Finished)
    totals = finished.totals
    assert (totals.draft_tokens, totals.accepted_by_drafter, totals.steps, totals.acceptance_rate) == (
        12,
        {"server": 6},
        4,
        0.5,
    )


def test_else_it_is_what_the_page_of_metrics_grew_by(served):
    numbers = iter(
        (VLLM.format(drafts=100, drafted=300, accepted=50), VLLM.format(drafts=104, drafted=312, accepted=56))
    )
    served.pages["/metrics"] = lambda: next(numbers)

    *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert isinstance(finished, Finished)
    assert (finished.totals.draft_tokens, finished.totals.accepted_by_drafter) == (12, {"server": 6})
    assert finished.totals.tokens_per_step == 2.5


def test_a_server_that_tells_nothing_of_guesses_has_none_in_its_totals(served):
    *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert isinstance(finished, Finished)
    assert (finished.totals.draft_tokens, finished.totals.steps, finished.totals.accepted_by_drafter) == (0, 0, {})
