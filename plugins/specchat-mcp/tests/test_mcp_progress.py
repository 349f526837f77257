"""A tool that reports three steps, shown while it runs: on the screen, in lines, in JSON and in an editor."""

import asyncio
import json
import threading

import pytest
from started_servers import DEMO, PATIENT_SECONDS, demo_settings, sources_of
from test_mcp_editor_sessions import with_servers

from acp_tests.conftest import editor, folder, runtime, stranger  # noqa: F401 (fixtures)
from acp_tests.test_agent_mode import chosen
from acp_tests.test_agent_mode import script as calls_of_editor
from acp_tests.test_file_edit import deciding
from specchat.app import tool_sources
from specchat.app.tool_sources import ToolSources, front_end_sources
from specchat.tui.folded_text import CallView
from specchat_mcp.server_progress import ServerProgress, progress_line
from specchat_mcp.servers import McpServers
from tests.app.agent.conftest import empty_repository, project  # noqa: F401 (fixtures)
from tests.app.agent.test_front_ends import made, script, shared_host, world  # noqa: F401 (fixtures)
from tests.front import command
from tests.tui.conftest import brief_idle_waits, run_on_screen  # noqa: F401 (fixtures)

STEPS = ["one (30 %)", "two (60 %)", "three␛[2J (100 %)"]
SUMMARY = "MCP server demo: count {}"
COUNT = script(made("demo__count"), "all done")


@pytest.fixture(scope="module")
def counting():
    servers = McpServers([demo_settings(allow=frozenset({"count"}))])
    yield servers
    servers.close()


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """A file that names the server, whose process ends with the test."""
    monkeypatch.setattr(tool_sources, "_sources", ToolSources())
    path = tmp_path / "mine.toml"
    words = json.dumps(DEMO)
    path.write_text(f"[mcp.demo]\ncommand = {words}\nallow = ['count']\nstart_seconds = {PATIENT_SECONDS:g}\n")
    yield str(path)
    front_end_sources().close()


def test_a_call_yields_each_step_and_then_its_outcome(counting):
    [tool] = [each for each in counting.tools(threading.Event()) if each.tool.name == "demo__count"]
    *lines, outcome = tool.run_reporting({}, threading.Event())

    assert (STEPS, "counted") == (lines, outcome.text)
    assert "counted" == tool.run({}, threading.Event()).text


def test_the_steps_are_lines_on_a_terminal_which_the_outcome_replaces(world, monkeypatch, profile):  # noqa: F811
    monkeypatch.setenv("TERM", "xterm")
    ran = command(monkeypatch, "ask", "--agent", "-P", profile, COUNT, on_terminal=True)

    assert (0, b"all done\n") == (ran.code, ran.out.replace(b"\r\n", b"\n"))
    for step in STEPS:
        assert f"\r\x1b[2Kdemo__count: {step}" in ran.err
    assert f"\r\x1b[2K* {SUMMARY}: counted" in ran.err


def test_a_pipe_gets_the_first_step_at_once(world, monkeypatch, profile):  # noqa: F811
    ran = command(monkeypatch, "-p", COUNT, "--agent", "-P", profile)

    assert (0, b"all done\n") == (ran.code, ran.out)
    assert f"demo__count: {STEPS[0]}\n* {SUMMARY}: counted\n" in ran.err


def test_the_steps_are_updates_of_the_call_in_json(world, monkeypatch, profile):  # noqa: F811
    ran = command(monkeypatch, "-p", COUNT, "--json", "--agent", "-P", profile)

    updates = [each["update"] for each in map(json.loads, ran.out.splitlines()) if each["type"] == "update"]
    begun, *steps, end = [each for each in updates if each["sessionUpdate"].startswith("tool_call")]
    assert STEPS == [each["content"][0]["content"]["text"] for each in steps]
    assert {("tool_call_update", begun["toolCallId"], "in_progress")} == {
        (each["sessionUpdate"], each["toolCallId"], each["status"]) for each in steps
    }
    assert "completed" == end["status"]


def test_the_line_of_a_running_call_on_the_screen_shows_the_step(
    run_on_screen,  # noqa: F811
    tmp_path,
    monkeypatch,
    counting,
):
    monkeypatch.setattr(tool_sources, "_sources", sources_of(counting))
    gate = tmp_path / "gate"

    async def scenario(driver):
        await driver.run_command("/agent on")
        await driver.submit(script(made("demo__count", until=str(gate)), "all done"))
        await driver.wait_until(lambda: any(f": {STEPS[-1]}" in each.line for each in driver.chat.query(CallView)))
        gate.touch()
        await driver.wait_until(lambda: driver.turns[-1].answer == "all done" and driver.turns[-1].is_finished)
        assert driver.chat.query_one(CallView).line.endswith(": counted")

    run_on_screen(scenario)


def test_an_editor_gets_the_steps_as_content_of_the_call(editor, folder):  # noqa: F811
    session = with_servers(editor, folder, {"name": "demo", "command": DEMO[0], "args": DEMO[1:], "env": []})

    deciding(editor, chosen("allow")).ask(session, calls_of_editor(("demo__count", {})))

    *steps, end = editor.of("tool_call_update")
    assert STEPS == [each["content"][0]["content"]["text"] for each in steps]
    assert {"in_progress"} == {each["status"] for each in steps}
    assert ("completed", "counted") == (end["status"], end["content"][0]["content"]["text"])
    editor.request("session/close", {"sessionId": session})


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ((3.0, None, None), "3"),
        ((3.0, None, "half\n way"), "half way"),
        ((1.0, 8.0, None), "10 %"),
        ((9.0, 8.0, "late"), "late (100 %)"),
        ((1.0, 0.0, ""), "1"),
        ((float("nan"), 8.0, "odd"), "odd"),
        ((-1.0, 8.0, None), "0 %"),
    ],
)
def test_a_report_is_a_line(report, line):
    assert line == progress_line(*report)


def test_equal_lines_are_one_and_of_a_flood_the_newest_are_kept():
    progress = ServerProgress()

    async def report(numbers):
        for number in numbers:
            await progress.report(number, 1000, None)

    asyncio.run(report(range(250)))
    assert ["0 %", "10 %", "20 %"] == list(progress.take_lines())
    asyncio.run(progress.report(1, None, "a"))
    for number in range(50):
        asyncio.run(progress.report(number, None, None))
    assert [str(number) for number in range(40, 50)] == list(progress.take_lines())
