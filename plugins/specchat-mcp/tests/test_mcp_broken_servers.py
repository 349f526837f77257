"""What a server does wrong is one line for the user and an error for the model, and nothing hangs."""

import json
import threading

import pytest
from started_servers import broken, call, details

from specchat.errors import CancelledError, SpecchatError
from specchat_mcp.event_loop import EventLoopThread
from specchat_mcp.server_settings import ServerSettings


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("dies", "ended with exit code 3: out of memory"),
        ("floods in a line", "printed more than 16 MiB for one request, and was stopped"),
        pytest.param(
            "floods with messages", "sent more than 10000 messages for one request, and was stopped",
            marks=pytest.mark.full,
        ),
        ("prints garbage", "prints other text than messages of MCP ('DEBUG: not a message"),
    ],
)  # fmt: skip
def test_a_server_that_fails_in_a_call_is_one_line_and_an_error(start, kind, said):
    servers = start(broken(kind))

    outcome = call(servers, "broken__go")
    [notice] = servers.take_notices()

    assert outcome.is_error
    assert said in outcome.text
    assert notice == outcome.text
    assert "\x1b" not in notice and "\n" not in notice
    assert "failed: " in servers.overview()
    assert () == servers.tools(threading.Event())


def test_a_server_that_answers_nonsense_keeps_running(start):
    servers = start(broken("answers nonsense"))

    outcome = call(servers, "broken__go")

    assert outcome.is_error and "\n" not in outcome.text
    assert "running" in servers.overview()
    assert () == servers.take_notices()


ENDLESS_PATTERN = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(a+)+b"}}}
LARGE_PATTERN = {"type": "object", "properties": {"x": {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}}}
# The schemas of tools, and the names of arguments that the model is told.
SCHEMAS = [
    (None, []),
    (5, []),
    ("object", []),
    ([], []),
    ({}, []),
    ({"properties": {"a": {}}}, ["a"]),
    ({"type": "array"}, []),
    ({"type": ["object", "null"], "properties": {"a": {}}}, ["a"]),
    ({"type": "object", "properties": 5}, []),
    ({"type": "object", "properties": ["a"]}, []),
    ({"type": "object", "properties": {"a": 5}}, ["a"]),
    ({"type": "object", "properties": {"a": {"type": "no such type"}}}, ["a"]),
    ({"type": "object", "properties": {"a": {}}, "required": "a"}, ["a"]),
    ({"type": "object", "properties": {"a": {}}, "required": [5, "b"]}, ["a"]),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, ["a"]),
    ({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}, ["a"]),
    ({"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}}, ["a"]),
    ({"type": "object", "properties": {"a": {"enum": []}}}, ["a"]),
    ({"type": "object", "properties": {"a": {"minLength": 10**30}}}, ["a"]),
    ({"type": "object", "properties": {"a": {"minItems": 10**9, "type": "array"}}}, ["a"]),
    ({"type": "object", "properties": {"a": {"description": "x" * 50_000}}}, ["a"]),
    (ENDLESS_PATTERN, ["x"]),
    (LARGE_PATTERN, ["x"]),
    ({"type": "object", "patternProperties": {"(": {}}}, []),
]


def nested(depth):
    schema = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_a_tool_with_a_wrong_schema_takes_no_other_tool_with_it(start):
    rows = [*SCHEMAS, (nested(150), ["a"])]
    tools = [{"name": f"tool{number}", "inputSchema": schema} for number, (schema, _names) in enumerate(rows)]
    entries = [{"name": 5, "inputSchema": {}}, {}, 7, None, *tools, {"name": "odd", "title": 5, "annotations": 5}]
    servers = start(broken("lists", json.dumps(entries)))

    offered = {each.tool.name.removeprefix("broken__"): each.tool for each in servers.tools(threading.Event())}

    assert [*(f"tool{number}" for number in range(len(rows))), "odd", "go"] == list(offered)
    for number, (schema, names) in enumerate(rows):
        assert names == list(offered[f"tool{number}"].schema.get("properties", {})), schema
    notices = " ".join(servers.take_notices())
    assert "lists 4 of its tools without a name; they are left out" in notices
    assert "\n" not in notices
    assert "well" == call(servers, "broken__go").text


def test_a_wrong_schema_is_said_once(start):
    servers = start(broken("lists", json.dumps([{"name": "a", "inputSchema": []}, {"name": "b", "inputSchema": 5}])))
    servers.tools(threading.Event())

    [notice] = servers.take_notices()
    assert "has a wrong schema for the tool a and 1 more; the names of its arguments are used" in notice
    assert () == servers.take_notices()


def test_a_pattern_in_the_schema_of_results_is_not_run(start):
    tool = {"name": "slow", "inputSchema": {"type": "object"}, "outputSchema": ENDLESS_PATTERN}

    assert "well" == call(start(broken("lists", json.dumps([tool]))), "broken__slow").text


def test_a_greeting_on_stdout_is_no_fault(start):
    assert "well" == call(start(broken("greets")), "broken__go").text


def test_a_call_without_an_answer_ends_with_its_time(start):
    outcome = call(start(broken("never answers", call_seconds=0.1)), "broken__go")

    assert outcome.is_error
    assert "did not answer within 0.1 s" in outcome.text


def test_the_user_can_stop_a_call(start):
    servers = start(broken("never answers"))
    [tool] = servers.tools(threading.Event())
    stopped = threading.Event()
    threading.Timer(0.1, stopped.set).start()

    assert "the user stopped the call" in tool.run({}, stopped).text
    assert "running" in servers.overview()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (broken("never starts", start_seconds=0.3), "did not start within 0.3 s"),
        (broken("ends at once"), "ended with exit code 1: no licence"),
        (ServerSettings("broken", ("/no/such/program",)), "No such file or directory: /no/such/program"),
        (ServerSettings("broken", url="http://127.0.0.1:9/mcp"), "All connection attempts failed"),
        (ServerSettings("broken", ("x",), problem="the environment has no variable TOKEN"), "no variable TOKEN"),
    ],
    ids=["never starts", "ends at once", "no program", "nobody listens", "no variable"],
)
def test_a_server_that_does_not_start_is_one_notice_and_offers_nothing(start, settings, said):
    servers = start(settings)

    assert () == servers.tools(threading.Event())
    [notice] = servers.take_notices()
    assert notice.startswith("MCP server broken: ")
    assert said in notice
    with pytest.raises(SpecchatError, match="MCP server broken: "):
        details(servers, "broken")
    assert () == servers.take_notices()  # the error has said it


def test_a_failed_server_is_started_again_when_the_user_says_so(start):
    servers = start(broken("dies"))
    call(servers, "broken__go")

    assert "tool broken__go" in servers.details("broken", threading.Event(), restarts=True)


def test_waiting_for_a_start_can_be_stopped(start):
    stopped = threading.Event()
    stopped.set()

    assert () == start(broken("never starts")).tools(stopped)


def test_ctrl_c_and_escape_end_the_waiting_for_a_command(start, monkeypatch):
    def interrupt(*_arguments):
        raise KeyboardInterrupt

    servers = start(broken("never starts"))
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(CancelledError, match="stopped waiting"):
        servers.details("broken", stopped)
    monkeypatch.setattr(EventLoopThread, "wait_for", interrupt)
    with pytest.raises(CancelledError, match="stopped waiting"):
        details(servers, "broken")


def test_a_tool_that_runs_as_a_task_only_is_not_offered_and_takes_no_other_with_it(start):
    kinds = ("required", "optional", "forbidden", 5)
    tools = [{"name": f"as-{kind}", "inputSchema": {}, "execution": {"taskSupport": kind}} for kind in kinds]
    servers = start(broken("lists", json.dumps([*tools, {"name": "odd", "inputSchema": {}, "execution": 5}])))

    offered = [each.server_tool_name for each in servers.tools(threading.Event())]

    assert ["as-optional", "as-forbidden", "as-5", "odd", "go"] == offered
    [notice] = servers.take_notices()
    assert "runs the tool as-required as a task only, which specchat has not; it is left out" in notice


@pytest.mark.parametrize(
    "settings",
    [broken("ends at once"), ServerSettings("broken", ("x",), problem="the environment has no variable TOKEN")],
    ids=["ends at once", "no variable"],
)
def test_a_dead_server_is_named_with_the_first_question_only(start, settings):
    servers = start(settings)
    servers.tools(threading.Event())
    assert 1 == len(servers.take_notices())

    assert () == servers.tools(threading.Event())
    assert () == servers.take_notices()
