"""Servers that an editor passes on, in the modes of its sessions."""

import json

import pytest
from started_servers import DEMO

from acp_tests.conftest import editor, folder, runtime, stranger  # noqa: F401 (fixtures)
from acp_tests.test_agent_mode import chosen, script
from acp_tests.test_file_edit import QUESTION, asked_of, deciding


def with_servers(editor, folder, *servers: dict[str, object], mode: str = "agent") -> str:  # noqa: F811
    opened = editor.request("session/new", {"cwd": str(folder), "mcpServers": servers})["sessionId"]
    editor.request("session/set_mode", {"sessionId": opened, "modeId": mode})
    return opened


@pytest.mark.parametrize(("option", "status"), [("allow", "completed"), ("reject", "failed")])
def test_tools_of_servers_that_the_editor_passes_on_ask_and_run(editor, folder, option, status):  # noqa: F811
    server = {"name": "my demo", "command": DEMO[0], "args": DEMO[1:], "env": []}
    session = with_servers(editor, folder, server)

    deciding(editor, chosen(option)).ask(session, script(("my_demo__add", {"a": 2, "b": 3})))

    assert 1 == len(asked_of(editor, QUESTION))
    update = editor.of("tool_call_update")[-1]
    assert status == update["status"]
    assert ("5" in json.dumps(update["content"])) == (option == "allow")
    editor.request("session/close", {"sessionId": session})


def test_a_server_that_does_not_start_is_one_line_and_the_answer_comes(editor, folder):  # noqa: F811
    session = with_servers(editor, folder, {"name": "broken", "command": "/bin/false", "args": [], "env": []})

    editor.ask(session, script(("read", {"path": "a.txt"})))

    assert 1 == editor.said("agent_thought_chunk").count("broken")
    assert "all done" == editor.said()


@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_no_server_starts_in_the_other_modes(editor, folder, mode):  # noqa: F811
    started = folder / "started"
    server = {"name": "s", "command": "/usr/bin/touch", "args": [str(started)], "env": []}

    editor.ask(with_servers(editor, folder, server, mode=mode), "count 2")

    assert not started.exists()
