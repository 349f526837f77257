"""The mode `agent`: calls with kind, place and diff, and a permission request before each that acts."""

from __future__ import annotations

import json

import pytest

from acp_tests.conftest import Served
from acp_tests.test_file_edit import QUESTION, WITHDRAWN, asked_of, deciding
from specchat_editors.acp.session_log import SessionLog
from specchat_editors.acp.stored_calls import CALL_LOG
from tests.plugins.conftest import rediscover

WRITE = {"path": "new.txt", "content": "new\n"}


def script(*calls: tuple[str, object]) -> str:
    return "\n".join(["agent", *(f"call {name} {json.dumps(arguments)}" for name, arguments in calls), "all done"])


def in_mode(editor, folder, mode: str) -> str:
    session = editor.new(folder)
    editor.request("session/set_mode", {"sessionId": session, "modeId": mode})
    return session


def chosen(option: str):
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.parametrize(("option", "is_written"), [("allow", True), ("allow-always", True), ("reject", False)])
def test_a_write_is_shown_asked_about_and_reported(editor, folder, option, is_written):
    (folder / "a.txt").write_text("one\n")

    end = deciding(editor, chosen(option)).ask(
        in_mode(editor, folder, "agent"), script(("read", {"path": "a.txt"}), ("write", WRITE))
    )

    assert "end_turn" == end["stopReason"]
    assert "all done" == editor.said()
    assert is_written == (folder / "new.txt").exists()
    read, write = editor.of("tool_call")
    assert ("read", "edit") == (read["kind"], write["kind"])
    assert [{"path": str(folder / "a.txt")}] == read["locations"]
    [question] = asked_of(editor, QUESTION)
    assert ("diff", "new\n") == tuple(question["toolCall"]["content"][0][key] for key in ("type", "newText"))
    assert write["toolCallId"] == question["toolCall"]["toolCallId"]
    assert ("completed" if is_written else "failed") == editor.of("tool_call_update")[-1]["status"]


def test_stop_ends_the_work(editor, folder):
    deciding(editor, chosen("stop")).ask(in_mode(editor, folder, "agent"), script(("run", {"command": "touch ran"})))

    assert not (folder / "ran").exists()
    assert "all done" not in editor.said()


def test_mode_plan_only_reads(editor, folder):
    editor.ask(in_mode(editor, folder, "plan"), script(("write", WRITE)))

    assert not (folder / "new.txt").exists()
    assert [] == asked_of(editor, QUESTION)
    assert "all done" == editor.said()


def test_no_tool_is_used_in_the_other_modes(editor, folder):
    for mode in ("ask", "edit", "auto"):
        editor.ask(in_mode(editor, folder, mode), script(("write", WRITE)))

    assert not (folder / "new.txt").exists()
    assert [] == editor.of("tool_call")


def test_servers_that_the_editor_passes_on_need_a_plugin_which_is_one_line_and_the_answer_comes(
    editor, folder, monkeypatch
):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "")
    rediscover()
    server = {"name": "s", "command": "/bin/false", "args": [], "env": []}
    session = editor.request("session/new", {"cwd": str(folder), "mcpServers": [server]})["sessionId"]
    editor.request("session/set_mode", {"sessionId": session, "modeId": "agent"})

    for _ in range(2):
        editor.ask(session, script(("read", {"path": "a.txt"})))

    assert 1 == editor.said("agent_thought_chunk").count("'pip install ./plugins/specchat-mcp' installs it")
    assert editor.said().endswith("all done")
    rediscover()


@pytest.fixture
def another(runtime):
    """The editor after a restart."""
    served = Served()
    served.editor.initialize()
    yield served.editor
    served.end()


def last_states(editor):
    """The calls as the editor shows them: the values of each update replace those before."""
    calls = dict[str, dict[str, object]]()
    for update in editor.updates:
        if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            calls.setdefault(update["toolCallId"], {}).update(update, sessionUpdate="")
    return calls


CALLS = (
    ("read", {"path": "a.txt"}),
    ("write", WRITE),
    ("edit", {"path": "a.txt", "new_text": "two\n"}),
    ("run", {"command": "exit 3"}),
    ("read", {"path": "missing.txt"}),
    ("fly", {}),
)


def after_calls(editor, folder):
    (folder / "a.txt").write_text("one\n")
    session = in_mode(editor, folder, "agent")
    deciding(editor, chosen("allow")).ask(session, script(*CALLS))
    return session


def test_a_loaded_session_shows_calls_and_results_as_they_were(editor, another, folder):
    session = after_calls(editor, folder)

    another.request("session/load", {"sessionId": session, "cwd": str(folder), "mcpServers": []})

    assert len(CALLS) == len(last_states(another))
    assert last_states(editor) == last_states(another)
    assert 2 == json.dumps(last_states(another)).count('"diff"')
    [question] = [update["content"]["text"] for update in another.of("user_message_chunk")]
    assert question.startswith(script(*CALLS))
    assert editor.said() == another.said()


def test_calls_without_a_log_are_made_from_the_history(editor, another, folder):
    session = after_calls(editor, folder)
    CALL_LOG.path_of(session).write_text("broken\n")

    another.request("session/load", {"sessionId": session, "cwd": str(folder), "mcpServers": []})

    live, loaded = last_states(editor), last_states(another)
    assert list(live) == list(loaded)
    for key in ("kind", "status", "locations"):
        assert [call.get(key) for call in live.values()] == [call.get(key) for call in loaded.values()]
    assert 'read {"path": "a.txt"}' == next(iter(loaded.values()))["title"]
    assert "one\n" == next(iter(loaded.values()))["content"][0]["content"]["text"]


def test_the_log_drops_the_oldest_calls_above_its_limits(runtime, monkeypatch):
    monkeypatch.setattr("specchat_editors.acp.session_log.MAX_BYTES", 9)
    log = SessionLog("acp-test", max_lines=3)

    log.append("session", *"abcd")
    assert ["b", "c", "d"] == log.lines("session")
    log.append("session", "a long", "short")

    assert ["short"] == log.lines("session")


@pytest.fixture
def with_instructions(folder):
    (folder / "AGENTS.md").write_text("Use tabs.\n")
    return folder


@pytest.mark.parametrize(
    ("option", "notice"), [("allow", "AGENTS.md is read: 10 characters"), ("reject", "AGENTS.md is not read, as you")]
)
def test_the_instructions_of_a_project_are_asked_about_once(editor, with_instructions, option, notice):
    for _ in range(2):
        deciding(editor, chosen(option)).ask(in_mode(editor, with_instructions, "agent"), "count 2")

    [question] = asked_of(editor, QUESTION)
    assert f"Read {with_instructions / 'AGENTS.md'} as instructions" in question["toolCall"]["title"]
    assert "Use tabs.\n" == question["toolCall"]["content"][0]["content"]["text"]
    assert 2 == editor.said("agent_thought_chunk").count(notice)
    assert ["completed" if option == "allow" else "failed"] == [end["status"] for end in editor.of("tool_call_update")]


def test_an_editor_that_cannot_ask_says_why_the_instructions_are_not_read(editor, with_instructions):
    def refuse(_params):
        raise LookupError("no questions")

    editor.answers[QUESTION] = refuse

    end = editor.ask(in_mode(editor, with_instructions, "agent"), "count 2")

    assert "end_turn" == end["stopReason"]
    assert "AGENTS.md is not read: the editor cannot ask you" in editor.said("agent_thought_chunk")
    deciding(editor, chosen("allow")).ask(in_mode(editor, with_instructions, "agent"), "count 2")
    assert "AGENTS.md is read" in editor.said("agent_thought_chunk")


def test_a_question_about_instructions_that_is_withdrawn_is_asked_again(editor, with_instructions):
    session = in_mode(editor, with_instructions, "agent")

    end = deciding(editor, WITHDRAWN).ask(session, "count 2")

    assert ("cancelled", "") == (end["stopReason"], editor.said())
    deciding(editor, chosen("allow")).ask(session, "count 2")
    assert "AGENTS.md is read" in editor.said("agent_thought_chunk")


def test_no_instructions_are_asked_about_without_tools(editor, with_instructions):
    editor.ask(in_mode(editor, with_instructions, "ask"), "count 2")

    assert [] == asked_of(editor, QUESTION)
