"""A conversation with a server: requests, events, and errors of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event as Flag

import pytest
from fake_server import MODEL, Served, serving
from metrics_pages import VLLM

from specchat.app.agent.agent_loop import AgentLoop, CallFinished
from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.app.agent.call_consent import Consent
from specchat.chat.events import Event, Failed, Finished, Routed, TextDelta, ThinkingDelta, ToolCallDelta
from specchat.chat.request import AnswerFormat, Attachment, Request, TokenBias
from specchat.chat.streamed_calls import StreamedCalls
from specchat.chat.tools import Tool, ToolResult
from specchat.chat.transcript import Turn
from specchat.errors import ModelError, UsageError
from specchat.profile.keys import Profile
from specchat_fleet.server_client import DEFAULT_TIMEOUTS, ServerTimeouts
from specchat_fleet.server_session import ServerEngine, ServerSession, chat_completion_body, connect_server
from tests.each_row import each_row


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


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def failure(events: list[Event]) -> str:
    assert isinstance(events[-1], Failed)
    assert "\n" not in events[-1].message and "--profile chat" in events[-1].message and events[-1].exit_code == 7
    return events[-1].message


def test_an_answer_has_the_events_of_the_local_engine(served):
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
    totals = finished.totals
    assert totals.seconds >= totals.ttft_seconds > 0
    assert totals.tokens_per_second == 3 / totals.seconds  # not by the time in which the last packet came


def test_without_usage_each_chunk_counts_as_one_token(served):
    *_, finished = ask(engine(served.url).create_session(), "bare 3")

    assert isinstance(finished, Finished) and finished.totals.completion_tokens == 3


def test_a_request_has_the_whole_conversation_and_the_sampling(served):
    values = {"sampling.top_k": 5, "sampling.temperature": 0.5, "sampling.seed": 3, "prompt.system": "be brief"}
    turns = [Turn("hello", answer="hi")]
    request = Request("echo this", files=(Attachment("a.py", "x = 1"),), max_tokens=9, stop=("END",))

    asked = json.loads(text_of(ask(engine(served.url, **values).create_session(turns), request)))

    assert [message["role"] for message in asked["messages"]] == ["system", "user", "assistant", "user"]
    assert asked["messages"][1:3] == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    assert "x = 1" in asked["messages"][-1]["content"]
    wanted = {"max_tokens": 9, "temperature": 0.5, "top_k": 5, "seed": 3, "stop": ["END"], "model": MODEL}
    assert {name: asked[name] for name in wanted} == wanted
    assert "min_p" not in asked  # nobody wants another than the usual


EDIT = Request("count 2", (Attachment("a.py", "x = 1\n"),), task="edit", file_to_rewrite="a.py", stop=("END",))


@each_row("backend", ["vllm", "sglang"])
def test_an_edit_is_begun_where_the_server_can_continue_an_answer(backend):
    with serving(owner=backend) as served:
        session = engine(served.url, **{"models.backend": backend}).create_session()
        events = ask(session, EDIT)

        (asked,) = served.asked
        assert {"role": "assistant", "content": "```python"} == asked["messages"][-1]
        assert (True, False) == (asked["continue_final_message"], asked["add_generation_prompt"])
        assert ["END", "\n```"] == asked["stop"]
        assert text_of(events).startswith("```python")
        assert text_of(events) == session.turns[0].answer


def test_a_server_is_asked_for_search_blocks_without_a_grammar(served):
    session = engine(served.url).create_session()
    blocks = Request("count 2", EDIT.files, task="edit-blocks", file_to_rewrite="a.py")

    ask(session, blocks)
    refused = ask(session, Request("count 2", answer_format=AnswerFormat.parse("lark", "start: /a/")))[-1]

    (asked,) = served.asked
    assert "search/replace blocks" in asked["messages"][0]["content"]
    assert not {"structured_outputs", "guided_grammar", "response_format"} & set(asked)
    assert isinstance(refused, Failed) and "lark" in refused.message


def test_another_server_is_asked_for_a_free_answer():
    with serving(owner="openai") as served:
        session = engine(served.url, **{"models.backend": "openai"}).create_session()
        events = ask(session, EDIT)

        (asked,) = served.asked
        assert "user" == asked["messages"][-1]["role"]
        assert "continue_final_message" not in asked
        assert ["END"] == asked["stop"]
        assert text_of(events).startswith("word0")


def test_turns_are_stored_and_can_be_removed(served):
    session = engine(served.url).create_session()
    ask(session, "count 2")
    ask(session, "count 1")

    session.turns = session.turns[:-1]
    ask(session, "count 3")

    assert [message["content"] for message in served.asked[-1]["messages"]] == ["count 2", "word0 word1 ", "count 3"]


@each_row(
    "backend, structure, expected",
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
def test_an_answer_format_becomes_the_parameters_of_the_server(backend, structure, expected):
    with serving(owner=backend) as served:
        session = engine(served.url, **{"models.backend": backend}).create_session()
        asked = json.loads(text_of(ask(session, Request("echo", answer_format=structure))))

    assert expected.items() <= asked.items()


def test_an_answer_format_without_server_support_is_an_error(served):
    session = engine(served.url, **{"models.backend": "openai"}).create_session()

    *_, failed = ask(session, Request("echo", answer_format=AnswerFormat.parse("regex", "a")))

    assert isinstance(failed, Failed) and failed.exit_code == 2 and served.asked == []


WEATHER = Tool.parse("weather", "the weather", {"type": "object", "properties": {"city": {"type": "string"}}})
LOOK = Tool("look")
CALLS = (("weather", '{"city": "Rome"}'), ("look", "{"))


def calling(session: ServerSession) -> list[Event]:
    """An answer with two calls, the second with arguments that are no JSON."""
    return ask(session, Request(f"call {json.dumps(CALLS)}", tools=(WEATHER, LOOK)))


def test_tool_calls_of_a_server_are_events_and_part_of_the_turn(served):
    session = engine(served.url).create_session()

    events = calling(session)

    calls = StreamedCalls()
    for event in events:
        if isinstance(event, ToolCallDelta):
            calls.add(event)
    assert [("call-0", *CALLS[0]), ("call-1", *CALLS[1])] == [(each.id, each.name, each.arguments) for each in calls]
    assert "tool_calls" == events[-1].finish_reason
    assert (tuple(calls), True) == (session.turns[-1].tool_calls, session.turns[-1].is_finished)
    assert [WEATHER.to_template(), LOOK.to_template()] == served.asked[0]["tools"]
    assert "tool_choice" not in served.asked[0]


def test_results_follow_their_calls_and_a_missing_one_is_named(served):
    session = engine(served.url).create_session()
    calling(session)

    results = (ToolResult("call-0", "weather", "no such city", is_error=True),)
    asked = json.loads(text_of(ask(session, Request("echo", tools=(WEATHER,), tool_results=results))))

    first, *messages = asked["messages"][-5:]
    assert ("user", "assistant") == (first["role"], messages[0]["role"])
    assert ['{"city": "Rome"}', '{"invalid_json": "{"}'] == [
        call["function"]["arguments"] for call in messages[0]["tool_calls"]
    ]
    assert [
        {"role": "tool", "tool_call_id": "call-0", "content": "Error: no such city"},
        {"role": "tool", "tool_call_id": "call-1", "content": "This call was not run."},
        {"role": "user", "content": "echo"},
    ] == messages[1:]
    assert results == session.turns[-1].tool_results


def test_an_answer_to_results_has_no_empty_question(served):
    session = engine(served.url).create_session()
    calling(session)
    results = (ToolResult("call-0", "weather", "sun"), ToolResult("call-1", "look", "echo"))

    asked = json.loads(text_of(ask(session, Request("", tools=(WEATHER,), tool_results=results))))

    assert ["assistant", "tool", "tool"] == [message["role"] for message in asked["messages"][-3:]]


@each_row(
    "choice, expected",
    [
        ("required", {"tool_choice": "required"}),
        ("look", {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        ("none", {}),
        ("call_or_answer", {}),
    ],
)
def test_the_choice_of_a_tool_is_passed_on(served, choice, expected):
    session = engine(served.url).create_session()

    asked = json.loads(text_of(ask(session, Request("echo", tools=(WEATHER, LOOK), tool_choice=choice))))

    assert expected == {name: asked[name] for name in ("tool_choice",) if name in asked}
    assert ("tools" in asked) == (choice != "none")


def test_calls_of_a_conversation_have_different_ids_whatever_the_server_gives(served):
    session = engine(served.url).create_session()
    for _ in range(3):
        ask(session, Request("call again", tools=(LOOK,)))

    ids = [call.id for turn in session.turns for call in turn.tool_calls]
    assert (3, "call-0") == (len(set(ids)), ids[0])


def test_a_server_that_refuses_tools_says_why(served):
    [*_, failed] = ask(engine(served.url).create_session(), Request("refuse 400", tools=(LOOK,)))

    assert "refused with 400: something is wrong" in failure([failed])


def test_an_agent_works_with_the_calls_of_a_server(served):
    class Look:
        tool, effect = LOOK, Effect.READ

        def describe(self, _arguments):
            return "look"

        def run(self, _arguments, _cancelled):
            return ToolOutcome("count 2")

    session, loop = engine(served.url).create_session(), AgentLoop([Look()], Consent())

    events = list(loop.run(session.ask, Request("call again"), Flag()))

    assert ["count 2"] == [event.outcome.text for event in events if isinstance(event, CallFinished)]
    assert "word0 word1 " == text_of(events)


@pytest.mark.parametrize("question", ["silent", "slowly 1000"])
def test_a_cancelled_answer_disconnects_at_once_and_keeps_its_text(served, question):
    session, cancelled, events = engine(served.url).create_session(), Flag(), []

    for event in session.ask(question, cancelled):
        events.append(event)
        if isinstance(event, TextDelta) and served.asked:
            cancelled.set()

    assert isinstance(events[-1], Finished) and events[-1].finish_reason == "cancelled"
    assert session.turns[-1].answer == text_of(events)
    assert served.left.wait(120)


def test_a_waiting_answer_does_not_delay_another(served):
    shared, events = engine(served.url), list[Event]()
    waiting, writing = shared.create_session().ask("silent"), shared.create_session().ask("count 3")

    while len(served.asked) < 2 or not isinstance(events[-1], Finished):
        assert not isinstance(next(waiting), Finished | Failed)
        events += [event for event in [next(writing, None)] if event]

    assert text_of(events) == "word0 word1 word2 "
    waiting.close()
    assert served.left.wait(120)


def test_a_server_that_is_down_is_an_error_before_the_first_request():
    with serving() as gone:
        url = gone.url

    with pytest.raises(ModelError, match=r"no server answers at .*; --profile chat"):
        engine(url)


def test_a_server_that_goes_down_between_two_questions(served):
    with serving() as other:
        session = engine(other.url).create_session()

    assert "no server answers" in failure(ask(session, "count 1"))
    assert session.turns == []


def test_a_connection_that_breaks_before_the_first_text_is_retried(served):
    events = ask(engine(served.url).create_session(), "late cut")

    assert text_of(events) == "word0 " and len(served.asked) == 2


def test_a_connection_that_breaks_during_the_answer_keeps_the_partial_answer(served):
    session = engine(served.url).create_session()

    events = ask(session, "cut 3")

    assert "disconnected during the answer" in failure(events)
    assert session.turns[-1].answer == text_of(events) == "word0 word1 word2 "
    assert not session.turns[-1].is_finished and len(served.asked) == 1


def test_a_server_that_sends_nothing_times_out(served):
    session = engine(served.url, ServerTimeouts(read_seconds=0.05)).create_session()

    assert "did not respond in time" in failure(ask(session, "silent"))


@each_row(
    "question, expected",
    [
        ("refuse 500", "refused with 500: something is wrong"),
        ("refuse 401", "needs an API key"),
        ("broken", "does not follow OpenAI's API (JSONDecodeError)"),
        ("nothing", "sent no valid answer"),
    ],
)
def test_an_error_of_the_server_is_one_line(served, question, expected):
    assert expected in failure(ask(engine(served.url).create_session(), question))


def test_a_missing_model_is_an_error_with_the_available_ones(served):
    with pytest.raises(ModelError, match=f"no model 'org/other', only {MODEL}"):
        engine(served.url, **{"models.target": "org/other"})


def test_an_openai_server_may_have_models_that_it_does_not_list():
    with serving(owner="somebody") as served:
        session = engine(served.url, **{"models.backend": "openai", "models.target": "org/other"}).create_session()

        assert "does not have this: The model `org/other` does not exist." in failure(ask(session, "count 1"))


def test_a_server_with_another_backend_is_an_error():
    with serving(owner="sglang") as served, pytest.raises(ModelError, match='is sglang: set backend = "sglang"'):
        engine(served.url)


def test_the_key_is_read_from_a_file(served, tmp_path):
    (tmp_path / "key").write_text("secret\n")

    assert engine(served.url, **{"models.api_key_file": str(tmp_path / "key")}).client.api_key == "secret"
    with pytest.raises(ModelError, match=r"api_key_file .* is not readable"):
        engine(served.url, **{"models.api_key_file": str(tmp_path / "none")})


def test_the_totals_have_the_speculation_metrics_of_the_response():
    expected = {"num_spec_steps": 4, "num_draft_tokens": 12, "num_accepted_draft_tokens": 6}
    with serving(metrics={"speculative_decoding": expected}) as served:
        *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert isinstance(finished, Finished)
    totals = finished.totals
    assert (totals.draft_tokens, totals.accepted_by_drafter, totals.steps) == (12, {"server": 6}, 4)


def test_without_them_the_totals_have_the_difference_of_the_metrics_pages(served):
    numbers = iter(
        (VLLM.format(drafts=100, drafted=300, accepted=50), VLLM.format(drafts=104, drafted=312, accepted=56))
    )
    served.pages["/metrics"] = lambda: next(numbers)

    *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert isinstance(finished, Finished)
    assert (finished.totals.draft_tokens, finished.totals.accepted_by_drafter) == (12, {"server": 6})
    assert finished.totals.tokens_per_step == 2.5


def test_a_page_tells_nothing_about_an_answer_that_another_one_came_before_or_beside(served):
    grown = iter(range(100))

    def page() -> str:
        count = next(grown)
        return VLLM.format(drafts=4 * count, drafted=12 * count, accepted=6 * count)

    served.pages["/metrics"] = page
    shared = engine(served.url)
    session, cancelled = shared.create_session(), Flag()
    for event in session.ask("slowly 1000", cancelled):
        if isinstance(event, TextDelta) and event.text:
            cancelled.set()
    assert served.left.wait(120)
    waiting = shared.create_session().ask("silent")
    drafted = list[int]()
    for is_beside in (False, False, True):
        while is_beside and served.asked[-1]["messages"][-1]["content"] != "silent":
            next(waiting)
        drafted.append(ask(session, "count 10")[-1].totals.draft_tokens)
    waiting.close()

    assert [0, 12, 0] == drafted


def test_the_totals_have_the_sums_that_llama_cpp_sends_with_its_times():
    timings = {"predicted_n": 10, "predicted_ms": 25.5, "draft_n": 12, "draft_n_accepted": 6}
    with serving(owner="llamacpp", timings=timings) as served:
        *_, finished = ask(engine(served.url, **{"models.backend": "openai"}).create_session(), "count 10")

    totals = finished.totals
    assert (totals.draft_tokens, totals.accepted_by_drafter, totals.steps) == (12, {"server": 6}, 4)


def test_the_totals_have_the_acceptance_by_depth_that_a_server_tells():
    counts = {"num_spec_steps": 4, "num_draft_tokens": 8, "num_accepted_draft_tokens": 5}
    steps = {"per_step_drafted": [3, 1, 1, 3], "per_step_accepted": [3, 1, 0, 1]}
    with serving(metrics={"speculative_decoding": counts | steps}) as served:
        *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert ((4, 2, 1), (3, 1, 1)) == (finished.totals.acceptance.tested, finished.totals.acceptance.accepted)


def test_without_metrics_the_totals_have_no_draft_tokens(served):
    *_, finished = ask(engine(served.url).create_session(), "count 10")

    assert isinstance(finished, Finished)
    assert (finished.totals.draft_tokens, finished.totals.steps, finished.totals.accepted_by_drafter) == (0, 0, {})


def test_thinking_that_a_server_sends_apart_is_no_part_of_the_answer(served):
    session = engine(served.url).create_session()

    events = ask(session, "think 3")
    ask(session, "count 1")

    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "thought0 thought1 thought2 "
    assert text_of(events) == session.turns[0].answer == "so it is"
    assert session.turns[0].thinking == "thought0 thought1 thought2 "
    assert served.asked[-1]["messages"][-2] == {"role": "assistant", "content": "so it is"}


@each_row("owner, sent", [("vllm", {"enable_thinking": False}), ("openai", None)])
def test_the_switch_is_sent_to_servers_that_render_the_template(served, owner, sent):
    session = engine(served.url, **{"models.backend": owner, "prompt.thinking": "off"}).create_session()

    ask(session, "count 1")

    assert served.asked[-1].get("chat_template_kwargs") == sent


def test_biases_are_sent_and_a_prompt_is_not_shown():
    biased = chat_completion_body(Profile(), (), Request("hi", logit_bias=(TokenBias(5, -100.0),)), 7)

    assert {"5": -100.0} == biased["logit_bias"]
    assert "logit_bias" not in chat_completion_body(Profile(), (), Request("hi"), 7)
    with pytest.raises(UsageError, match="does not show the prompt"):
        chat_completion_body(Profile(), (), Request("hi", only_renders=True), 7)
