"""The loop over a scripted model: order, limits, what goes back to the model, and that nothing is lost."""

from __future__ import annotations

import json
from threading import Event as Flag

import pytest

from specchat.app.agent.agent_loop import (
    EVERY_CALL_FAILED,
    MAX_SAME_CALLS,
    MAX_WRONG_CALLS,
    NOT_RUN,
    CallFinished,
    CallProgressed,
    CallStarted,
    LoopEnded,
    LoopLimits,
    RoundStarted,
)
from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.app.agent.call_consent import Rules
from specchat.app.agent.read_tools import MAX_CHOICES, existing_files
from specchat.app.consent import Answer
from specchat.chat.events import Failed, Finished, Notice, TextDelta, ToolCallDelta, Totals
from specchat.chat.request import Request
from specchat.chat.tools import CALL_OR_ANSWER, Tool
from tests.app.agent.scripted import REPOSITORY, ScriptedModel, agent_tools, call, work

READ = call("read", path="README.md")


def test_results_go_to_the_model_until_it_calls_nothing(files):
    done = work(files, [READ], [call("list", folder="notes"), call("search", pattern="TAX = ")], "a small shop")

    assert "a small shop" == done.text
    assert [REPOSITORY["README.md"], "notes/todo.txt", "shop/prices.py:1:TAX = 0.2"] == done.model.results
    assert ["do it", "", ""] == [request.text for request in done.model.requests]
    assert done.loop.unsent_results == ()


def test_the_tools_are_named_with_every_request(files):
    done = work(files, [READ], "so")

    names = ["read", "list", "search", "edit", "write", "run"]
    assert [names, names] == [[tool.name for tool in request.tools] for request in done.model.requests]
    assert {CALL_OR_ANSWER} == {request.tool_choice for request in done.model.requests}


def test_results_carry_the_ids_of_their_calls_in_the_order_of_the_calls(files):
    done = work(files, [call("run", command="x"), READ], "so", answers=[Answer.NO])

    assert ["call_1_0", "call_1_1"] == [result.call_id for result in done.model.requests[1].tool_results]
    assert [True, False] == [result.is_error for result in done.model.requests[1].tool_results]


def test_events_of_a_call_stand_between_the_answers(files):
    done = work(files, [READ], "so")

    kinds = [type(each) for each in done.events if not isinstance(each, ToolCallDelta)]
    assert [Finished, CallStarted, CallFinished, RoundStarted, TextDelta, Finished] == kinds
    started = next(each for each in done.events if isinstance(each, CallStarted))
    assert ("read README.md", Effect.READ, "README.md") == (started.summary, started.effect, started.path)


class Counting:
    """A tool that says how far it is."""

    tool, effect = Tool("count", ""), Effect.READ

    def describe(self, arguments):
        return "count"

    def run_reporting(self, arguments, cancelled):
        yield from ("one of two", "two of two", ToolOutcome("counted"))

    def run(self, arguments, cancelled):
        raise AssertionError("its progress would be lost")


def test_the_progress_of_a_call_stands_between_its_begin_and_its_outcome(files):
    done = work(files, [call("count")], "so", tools=[Counting()])

    begun, one, two, end = (each for each in done.events if type(each).__name__.startswith("Call"))
    assert (CallStarted, CallProgressed, CallProgressed, CallFinished) == tuple(map(type, (begun, one, two, end)))
    assert ["one of two", "two of two", "counted"] == [one.line, two.line, end.outcome.text]
    assert begun.call.id == one.call.id == two.call.id


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("read", '{"path": "README.md"', "not valid JSON"),
        ("read", "[1]", "must be a JSON object"),
        ("read", "[" * 100_000, "nested too deeply"),
        ("read", "{}", "'path' is a required property"),
        ("read", {"path": 5}, "path: 5 is not of type 'string'"),
        ("read", {"path": "README.md", "all": True}, "'all' was unexpected"),
        ("fetch", {"url": "http://example.org"}, "there is no tool 'fetch'; the tools are read, list"),
        ("", "", "there is no tool ''"),
    ],
)
def test_a_wrong_call_goes_back_to_the_model(files, name, arguments, message):
    done = work(files, [(name, arguments)], [READ], "so")

    assert message in done.model.results[0]
    assert done.model.requests[1].tool_results[0].is_error
    assert "so" == done.text


def test_wrong_calls_end_the_loop_after_a_few(files):
    done = work(files, *[[("read", f'{{"path": {number}')] for number in range(20)])

    assert MAX_WRONG_CALLS == len(done.model.requests)
    assert f"{MAX_WRONG_CALLS} calls were not valid" == done.end_reason


def test_the_same_call_in_a_row_ends_the_loop_and_does_not_run_again(files, project):
    add = call("run", command="echo x >> count")
    done = work(files, *[[add]] * 5, rules=Rules.parse(["run"]))

    assert MAX_SAME_CALLS == len(done.model.requests)
    assert "x\n" * (MAX_SAME_CALLS - 1) == (project / "count").read_text()
    assert "same call" in done.end_reason


def test_the_number_of_answers_is_limited(files):
    script = [[call("read", path="README.md", first_line=1, lines=number + 1)] for number in range(9)]

    done = work(files, *script, limits=LoopLimits(rounds=3))

    assert 3 == len(done.model.requests)
    assert "the limit of 3 answers is reached (agent.rounds)" == done.end_reason


def test_a_cancelled_tool_ends_the_loop_and_every_call_has_a_result(files):
    cancelled = Flag()

    class Slow:
        tool, effect = Tool("slow"), Effect.READ

        def describe(self, arguments):
            return "slow"

        def run(self, arguments, flag):
            cancelled.set()
            return ToolOutcome("half of it", is_error=True)

    done = work(files, [call("slow"), READ], "so", tools=[Slow(), *agent_tools(files)], cancelled=cancelled)

    assert 1 == len(done.model.requests)
    assert "stopped by the user" == done.end_reason
    assert ["half of it", "not run: stopped by the user"] == [each.text for each in done.loop.unsent_results]


def test_results_that_were_not_sent_go_along_with_the_next_question(files):
    done = work(files, [call("run", command="x"), READ], answers=[Answer.STOP])
    model = ScriptedModel(["all right"])

    list(done.loop.run(model.ask, Request("go on"), Flag()))

    assert ["call_1_0", "call_1_1"] == [result.call_id for result in model.requests[0].tool_results]
    assert "go on" == model.requests[0].text
    assert done.loop.unsent_results == ()


def test_results_stay_when_the_request_with_them_fails(files):
    def fail(_request, _cancelled):
        yield Failed("no engine")

    done = work(files, [call("run", command="x")], answers=[Answer.STOP])
    list(done.loop.run(fail, Request("go on"), Flag()))

    assert 1 == len(done.loop.unsent_results)


def test_a_reader_that_goes_away_in_a_call_leaves_a_result_for_every_call(files):
    done = work(files, [call("run", command="x")], answers=[Answer.STOP])
    events = done.loop.run(ScriptedModel([[READ, READ]]).ask, Request("again"), Flag())
    for event in events:
        if isinstance(event, CallStarted):
            events.close()
            break

    assert [NOT_RUN, NOT_RUN] == [each.text for each in done.loop.unsent_results]


@pytest.mark.parametrize(("reason", "said"), [("length", "limits.answer"), ("repetition", "repeated itself")])
def test_a_call_that_was_cut_off_does_not_run_and_ends_the_work(files, project, reason, said):
    def ask(_request, _cancelled):
        yield ToolCallDelta(0, "a", "run")
        yield ToolCallDelta(0, "a", "", json.dumps({"command": "touch ran"}))
        yield Finished(reason, Totals())

    done = work(files, "so", rules=Rules.parse(["run"]))
    [*_, ended] = done.loop.run(ask, Request("x"), Flag())

    assert isinstance(ended, LoopEnded)
    assert said in ended.reason
    assert not (project / "ran").exists()


def test_a_result_is_bounded_whatever_the_tool_says(files):
    class Flood:
        tool, effect = Tool("flood"), Effect.READ

        def describe(self, arguments):
            return "flood"

        def run(self, arguments, cancelled):
            return ToolOutcome("x" * 1_000_000)

    done = work(files, [call("flood")], "so", tools=[Flood()], limits=LoopLimits(result_characters=1000))

    assert len(done.model.results[0]) < 1100
    assert "999000 characters left out" in done.model.results[0]


def test_of_two_tools_with_one_name_the_first_counts(files):
    class Impostor:
        tool, effect = Tool("read"), Effect.READ

        def describe(self, arguments):
            return "read"

        def run(self, arguments, cancelled):
            return ToolOutcome("false")

    done = work(files, [READ], "so", tools=[*agent_tools(files), Impostor()])

    assert [REPOSITORY["README.md"]] == done.model.results


def notices(done):
    return [each.text for each in done.events if isinstance(each, Notice)]


def test_an_answer_after_calls_that_all_failed_says_so(files):
    missing = call("read", path="missing.py")

    assert [EVERY_CALL_FAILED] == notices(work(files, [missing], [call("fetch")], "it is a shop"))
    assert [] == notices(work(files, [missing], [READ], "it is a shop"))
    assert [] == notices(work(files, "it is a shop"))


def test_a_small_model_chooses_among_the_files_that_are_there(files, project):
    def offered(request):
        return {each.name: each.schema["properties"].get("path", {}).get("enum") for each in request.tools}

    (project / "deep" / "inner").mkdir(parents=True)
    (project / "deep" / "inner" / "a.py").touch()
    new = call("write", path="new.py", content="x = 1\n")
    done = work(files, [new], "so", rules=Rules.parse(["write"]), existing_files=lambda: existing_files(files))
    first, second = map(offered, done.model.requests)

    assert first["read"] == first["edit"] and "shop/cart.py" in first["read"]
    assert "debug.log" not in first["read"] and "new.py" not in first["read"]
    assert "new.py" in second["read"]
    assert first["write"] is None
    [list_tool] = [each for each in done.model.requests[0].tools if "list" == each.name]
    assert [".", "deep", "deep/inner", "notes", "shop"] == list_tool.schema["properties"]["folder"]["enum"]
    assert not list_tool.schema["required"]


def test_many_files_are_no_choices(files, project):
    for number in range(MAX_CHOICES):
        (project / f"{number}.txt").touch()

    assert () == existing_files(files)
