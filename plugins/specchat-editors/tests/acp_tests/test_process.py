"""The process that an editor starts: its descriptors, its environment, its exit codes."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import acp
import pytest

from acp_tests.driver import Editor
from tests.processes import modules_after

ROOT = Path(__file__).parents[4]
COMMAND = (sys.executable, "-m", "tests.host.served", "acp")
PATIENCE_SECONDS = 120.0


def bare_environment(runtime: Path) -> dict[str, str]:
    """Nothing but where programs, the plugin and the engine process are."""
    return {"PATH": "/usr/bin:/bin", "SPECCHAT_RUNTIME": str(runtime), "PYTHONPATH": os.environ["PYTHONPATH"]}


class Started:
    """An agent of its own, in an environment with nothing in it."""

    def __init__(self, runtime: Path, **environment: str) -> None:
        bare = {**bare_environment(runtime), **environment}
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=bare
        )
        self.editor = Editor(self.process.stdin.fileno(), self.process.stdout.fileno())

    def ended(self) -> tuple[int, bytes]:
        """The exit code, and what was said on stderr."""
        code = self.process.wait(PATIENCE_SECONDS)
        return code, self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except OSError:
                pass


@pytest.fixture
def start(runtime):
    """Starts agents that do not outlive the test."""
    started = []

    def begin(**environment: str) -> Started:
        started.append(Started(runtime, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def test_an_editor_that_hangs_up_in_the_middle_ends_it_quietly_and_the_next_one_goes_on(start, tmp_path):
    first = start(NOISY="1")
    first.editor.initialize()
    session = first.editor.new(tmp_path)
    first.editor.send_prompt(session, "slowly 100000")
    first.editor.until(lambda: len(first.editor.of("agent_message_chunk")) > 3)

    first.process.stdin.close()

    assert (0, b"") == first.ended()
    assert all(message["jsonrpc"] == "2.0" for message in first.editor.heard)  # and no noise
    second = start().editor
    second.initialize()
    second.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
    assert "slowly 100000" == second.said("user_message_chunk")
    assert second.said().startswith("word0 ")
    assert "turn 1" in (second.ask(session, "count 2") and second.said())


@pytest.mark.full
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.full) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_in_the_middle_of_a_turn_ends_it(start, tmp_path, number):
    agent = start()
    agent.editor.initialize()
    prompt = agent.editor.send_prompt(agent.editor.new(tmp_path), "slowly 100000")
    agent.editor.until(agent.editor.said)

    agent.process.send_signal(number)

    assert "cancelled" == agent.editor.wait(prompt)["result"]["stopReason"]
    assert (128 + number, b"") == agent.ended()


@pytest.mark.full
def test_an_editor_that_stops_reading_ends_it_quietly(start, tmp_path):
    agent = start()
    agent.editor.initialize()
    agent.editor.send_prompt(agent.editor.new(tmp_path), "slowly 100000")
    agent.editor.until(agent.editor.said)

    agent.process.stdout.close()

    assert (0, b"") == agent.ended()


@pytest.mark.full
def test_long_lines_are_read_and_longer_ones_refused(start, tmp_path):
    editor = start().editor
    editor.initialize()
    session = editor.new(tmp_path)

    assert "end_turn" == editor.ask(session, "y" * 20 * 2**20)["stopReason"]
    assert "the context window has 8192" in editor.said()
    editor.write_bytes(b'{"jsonrpc":"2.0","id":5,"method":"' + b"z" * 33 * 2**20 + b'"}\n')
    refused = editor.until(lambda: next((each for each in editor.heard if "error" in each), None))
    assert (-32600, None) == (refused["error"]["code"], refused["id"])
    assert "end_turn" == editor.ask(session, "count 2")["stopReason"]


@pytest.mark.parametrize("kind", ["file", "nothing"])
def test_standard_input_may_be_a_file(runtime, tmp_path, kind):
    lines = tmp_path / "lines"
    lines.write_text('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}')  # without an end
    said = tmp_path / "said"
    environment = bare_environment(runtime)

    with Path(lines if kind == "file" else os.devnull).open() as stdin, said.open("w") as stdout:
        ran = subprocess.run(
            COMMAND,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            timeout=180,
            check=False,
        )

    assert (0, b"") == (ran.returncode, ran.stderr)
    assert ('"protocolVersion":1' in said.read_text()) == (kind == "file")


def test_on_a_terminal_the_command_refuses_and_says_why(runtime):
    ours, theirs = pty.openpty()

    ran = subprocess.run(COMMAND, stdin=theirs, capture_output=True, cwd=ROOT, timeout=180, check=False)

    os.close(ours), os.close(theirs)
    assert 2 == ran.returncode
    assert b"agent_servers" in ran.stderr
    assert 1 == ran.stderr.count(b"\n")


def test_a_wrong_profile_is_one_line_and_an_exit_code(runtime):
    ran = subprocess.run(
        (*COMMAND, "--profile", "nonsense"), input=b"", capture_output=True, cwd=ROOT, timeout=180, check=False
    )

    assert (2, b"") == (ran.returncode, ran.stdout)
    assert b"nonsense" in ran.stderr
    assert 1 == ran.stderr.count(b"\n")


def test_an_editor_is_served_without_torch_and_the_help_text_without_the_sdk():
    assert not {"torch", "transformers", "textual", "numpy"} & modules_after("import specchat_editors.acp.agent")
    assert not {"acp", "pydantic", "torch"} & modules_after("import specchat_editors.acp.command")


class Sdk:
    """The client's side of the official SDK."""

    def __init__(self) -> None:
        self.said = ""

    async def session_update(self, session_id, update, **_meta) -> None:
        if update.session_update == "agent_message_chunk":
            self.said += update.content.text


def test_the_official_python_client_talks_to_it(runtime, tmp_path):
    async def talk() -> tuple[str, str]:
        client = Sdk()
        environment = bare_environment(runtime)
        async with acp.spawn_agent_process(client, *COMMAND, env=environment, cwd=ROOT) as (agent, _process):
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
            end = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("count 3")])
            return end.stop_reason, client.said

    reason, said = asyncio.run(talk())

    assert "end_turn" == reason
    assert said.startswith("word0 word1 seed")
