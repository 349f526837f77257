"""Tools, prompts and resources of a server of the package `mcp`, over stdio and over HTTP."""

import asyncio
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from started_servers import DEMO, call, demo_settings, details, sources_of

from specchat.app.agent.agent_tool import Effect
from specchat.app.agent.call_consent import Consent, Rules
from specchat.app.chat_state import ChatState
from specchat.app.command_registry import prompt_commands, run_line
from specchat.errors import InputError, UsageError
from specchat_mcp.server_settings import ServerSettings
from specchat_mcp.servers import McpServers
from tests.front import request_of
from tests.scripted_session import ScriptedSession

PATIENCE_SECONDS = 120.0


def chat_with(servers):
    return ChatState(ScriptedSession(), sources=sources_of(servers))


def tools_of(servers):
    return {each.tool.name: each for each in servers.tools(threading.Event())}


def test_a_tool_is_called_with_the_arguments_of_the_model(demo):
    assert "5" == call(demo, "demo__add", a=2, b=3).text


def test_every_tool_is_external_and_only_the_allowed_one_needs_no_question(demo):
    tools = tools_of(demo)

    assert {Effect.EXTERNAL} == {each.effect for each in tools.values()}
    assert ["demo__add"] == [name for name, each in tools.items() if each.is_allowed]


def test_only_an_allowed_tool_passes_the_consent_where_no_person_can_be_asked(demo):
    tools = tools_of(demo)
    consent = Consent(Rules.parse(demo.allow_rules()))

    assert consent.refusal(tools["demo__add"], {}) is None
    assert "needs the consent of the user" in consent.refusal(tools["demo__hostile"], {}).text
    assert "not in plan mode" in Consent(Rules(is_read_only=True)).refusal(tools["demo__add"], {}).text


def test_a_call_is_described_in_one_line(demo):
    described = tools_of(demo)["demo__add"].describe({"a": "1\n\x1b[2J", "b": "x" * 1000 + "  ; rm -r ."})

    assert described.startswith('MCP server demo: add {"a": "1')
    assert described.isprintable()
    assert described.endswith('x  ; rm -r ."}')  # whole, as it is what the user consents to


def test_a_hostile_description_is_printable_and_changes_nothing(demo):
    hostile = tools_of(demo)["demo__hostile"]

    assert "\x1b" not in hostile.tool.description
    assert "␛]52;c;" in hostile.tool.description
    assert "\U000e0049" not in hostile.tool.description  # a letter that only models read
    assert Effect.EXTERNAL is hostile.effect
    assert not hostile.is_allowed
    assert "\x1b" not in details(demo, "demo")


def test_pictures_are_named_as_left_out(demo):
    assert "here it is\n[image (image/png) left out]" == call(demo, "demo__look").text


def test_a_long_result_keeps_its_beginning_and_its_end(demo):
    text = call(demo, "demo__long", lines=100_000).text

    assert len(text) < 31_000
    assert text.startswith("line 0\n")
    assert text.endswith("line 99999")
    assert "left out" in text


def test_an_error_of_a_tool_is_an_error_for_the_model(demo):
    outcome = call(demo, "demo__fail")

    assert outcome.is_error
    assert "no such thing" in outcome.text


def test_a_server_gets_the_named_variables_and_no_others(demo, monkeypatch):
    monkeypatch.setenv("SECRET_OF_MINE", "x")

    assert "hello" == call(demo, "demo__variable", variable="GREETING").text
    assert "(unset)" == call(demo, "demo__variable", variable="SECRET_OF_MINE").text


def test_a_schema_that_no_grammar_fits_is_reduced_to_the_names_of_its_keys(demo):
    from demo_server import ENDLESS

    tools = tools_of(demo)

    assert ENDLESS != tools["demo__endless"].tool.schema
    assert {"a": {}} == tools["demo__endless"].tool.schema["properties"]
    assert "only the names of its arguments" in tools["demo__endless"].note
    assert "" == tools["demo__add"].note
    assert "integer" == tools["demo__add"].tool.schema["properties"]["a"]["type"]


def test_a_prompt_is_a_slash_command(demo):
    chat = chat_with(demo)

    asked = run_line(chat, "/mcp:demo:review src/a.py its error handling").request
    named = run_line(chat, '/mcp:demo:review focus="the end" path=b.py').request

    assert "Review src/a.py; look at its error handling." == asked.text
    assert "Review b.py; look at the end." == named.text
    assert "PATH [FOCUS]" == prompt_commands(chat.sources)["mcp:demo:review"].arguments


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/mcp:demo:review", "the prompt review needs path; it takes PATH"),
        ("/mcp:demo:revew x", "did you mean 'review'"),
        ("/mcp:dmo:review x", "did you mean 'demo'"),
        ("/mcp dmo", "did you mean 'demo'"),
        ("/mcp start demo", "/mcp NAME starts one"),
    ],
)
def test_a_wrong_command_names_the_nearest(demo, line, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        run_line(chat_with(demo), line)


def test_a_resource_is_attached_by_its_name(demo):
    request = request_of(chat_with(demo), "what is in @demo:notes://today?")

    [file] = request.files
    assert "@demo:notes://today" == file.name
    assert "buy milk" == file.text
    assert "@demo:notes://today" in [each.name for each in demo.resources()]


def test_a_resource_that_is_no_text_or_not_there_is_an_error(demo):
    with pytest.raises(InputError, match="is not text"):
        request_of(chat_with(demo), "and @demo:notes://blob")
    with pytest.raises(Exception, match="MCP server demo: "):
        request_of(chat_with(demo), "and @demo:notes://tomorrow")


def test_mcp_lists_the_servers_and_their_tools(demo):
    details(demo, "demo")
    shown = run_line(chat_with(demo), "/mcp").text

    assert f"{Path(DEMO[1]).name}): running" in shown
    assert "  tool demo__add (allowed): Add two numbers." in shown


def test_a_front_end_without_servers_says_where_they_are_named():
    assert "no MCP server is named" in run_line(ChatState(ScriptedSession()), "/mcp").text
    with pytest.raises(UsageError, match="no MCP server is named"):
        run_line(ChatState(ScriptedSession()), "/mcp:x:y")


@pytest.mark.full
def test_a_server_of_500_tools_offers_them_all_and_ends_in_a_call_with_one_line(start):
    servers = start(demo_settings(env=(("TOOLS", "500"),)))

    assert 510 == len(tools_of(servers))
    assert "and 490 more; /mcp demo lists them" in servers.overview()
    assert "ended with exit code 3: out of memory" in call(servers, "demo__die").text


def test_nothing_starts_before_it_is_needed():
    servers = McpServers([ServerSettings("demo", ("/no/such/program",))])

    assert "not started" in servers.overview()
    assert ["@demo:"] == [each.name for each in servers.resources()]
    assert [] == servers.prompts()


def test_a_server_ends_with_its_front_end(start, tmp_path):
    left_behind = tmp_path / "left behind"
    servers = start(ServerSettings("demo", ("sh", "-c", f"sleep 600 & echo $! >'{left_behind}'; cat >/dev/null")))
    servers.begin()
    pid = int(wait_until(lambda: left_behind.exists() and left_behind.read_text().strip()))
    assert is_running(pid)

    servers.close()

    assert wait_until(lambda: not is_running(pid)), f"process {pid} of the server is left behind"


def wait_until(condition):
    """What it returned last: something true, or something false after a long time."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


def is_running(pid):
    """Not so when nobody has asked for the exit code of the process yet."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.fixture(scope="module")
def address():
    import uvicorn
    from demo_server import make_server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(make_server().streamable_http_app(), port=port, log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/mcp"
    server.should_exit = True
    thread.join()


def test_a_server_at_a_url_works_the_same_way(start, address):
    servers = start(ServerSettings("web", url=address, start_seconds=200))

    assert "5" == call(servers, "web__add", a=2, b=3).text
    assert "Review a.py; look at all of it." == run_line(chat_with(servers), "/mcp:web:review a.py").request.text
    assert "buy milk" == request_of(chat_with(servers), "see @web:notes://today").files[0].text


@pytest.mark.full
def test_a_flood_over_http_is_one_line(start, address):
    servers = start(ServerSettings("web", url=address, start_seconds=200))

    outcome = call(servers, "web__long", lines=2_000_000)

    assert outcome.is_error
    assert "more than 16 MiB" in outcome.text or "exceeded the 16777216 byte limit" in outcome.text
