"""Stored conversations: listed, replayed, continued, deleted; and the options of a session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acp_tests.conftest import Served
from specchat.cli.options import KEY_BY_FLAG, parameter_name
from specchat.history.history_reader import StoredAnswer, StoredTurn
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import project_trust
from specchat.profile.project_file import find_project_file
from specchat.profile.settings import read_settings
from specchat_editors.acp.command import _session_request as session_request_for
from specchat_editors.acp.session_config import RunnableModel, SessionConfig
from specchat_editors.acp.stored_sessions import EDIT_LOG, LoggedEdit, log_edit, logged_edits, replay_updates


@pytest.fixture
def another(runtime):
    """The editor after a restart."""
    served = Served()
    served.editor.initialize()
    yield served.editor
    served.end()


def params(session, folder):
    return {"sessionId": session, "cwd": str(folder), "mcpServers": []}


def test_a_conversation_is_replayed_before_it_continues(editor, another, folder):
    session = editor.new(folder)
    editor.ask(session, "count 3")

    another.request("session/load", params(session, folder))

    assert "count 3" == another.said("user_message_chunk")
    assert editor.said() == another.said()
    assert "turn 1" in (another.ask(session, "count 2") and another.said())


def test_edits_are_replayed_at_their_position(editor, another, folder):
    (folder / "a.py").write_text("total = 1\n")
    (folder / "b.py").write_text("total = 1\n")
    answers = iter(["allow", "reject"])
    editor.answers["session/request_permission"] = lambda _params: {
        "outcome": {"outcome": "selected", "optionId": next(answers)}
    }
    session = editor.new(folder)
    for prompt in ("count 2", "/edit a.py replace total amount", "/edit b.py replace total sum", "count 3"):
        editor.ask(session, prompt)

    another.request("session/load", params(session, folder))

    questions = [update["content"]["text"] for update in another.of("user_message_chunk")]
    assert ["count 2", "/edit a.py replace total amount", "/edit b.py replace total sum", "count 3"] == questions
    assert {"Edit a.py": ["completed"], "Edit b.py": ["failed"]} == another.tools()
    assert "amount = 1\n" == another.of("tool_call")[0]["content"][0]["newText"]
    assert "a.py: 1 change written" in another.said()
    assert "left as it was" in another.said()


@pytest.fixture
def edited(editor, folder):
    """A session in which nothing but an edit was asked."""
    (folder / "a.py").write_text("total = 1\n")
    allow(editor)
    session = editor.new(folder)
    editor.ask(session, "/edit a.py replace total amount")
    return session


def allow(editor):
    outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
    editor.answers["session/request_permission"] = lambda _params: outcome
    return editor


def test_a_session_of_edits_alone_is_listed_with_its_first_prompt_as_name(edited, editor, another, folder):
    [row] = another.request("session/list", {"cwd": str(folder)})["sessions"]

    assert (edited, "/edit a.py replace total amount") == (row["sessionId"], row["title"])
    assert row["title"] == editor.of("session_info_update")[-1]["title"]


def test_a_session_of_edits_alone_is_replayed_and_continues(edited, editor, another, folder):
    another.request("session/load", params(edited, folder))

    assert "/edit a.py replace total amount" == another.said("user_message_chunk")
    assert {"Edit a.py": ["completed"]} == another.tools()
    assert editor.said() == another.said()
    allow(another).ask(edited, "/edit a.py replace amount sum")
    assert "turn 0" in (another.ask(edited, "count 2") and another.said())
    assert "sum = 1\n" == (folder / "a.py").read_text()


def test_a_session_that_began_with_edits_is_one_session_when_it_continues(edited, editor, another, folder):
    editor.ask(edited, "/edit a.py replace amount sum")
    editor.ask(edited, "count 2")

    [row] = another.request("session/list", {"cwd": str(folder)})["sessions"]
    another.request("session/load", params(edited, folder))

    assert edited == row["sessionId"]
    questions = [update["content"]["text"] for update in another.of("user_message_chunk")]
    assert ["/edit a.py replace total amount", "/edit a.py replace amount sum", "count 2"] == questions


def test_a_session_of_edits_alone_continues_without_a_replay(edited, another, folder):
    another.request("session/resume", params(edited, folder))

    assert not another.of("user_message_chunk")
    assert "turn 0" in (another.ask(edited, "count 2") and another.said())


def test_a_session_of_edits_alone_is_replayed_while_it_is_open(edited, editor, folder):
    del editor.updates[:]

    editor.request("session/load", params(edited, folder))

    assert "/edit a.py replace total amount" == editor.said("user_message_chunk")
    assert "turn 0" in (editor.ask(edited, "count 2") and editor.said())


def test_a_session_that_was_renamed_before_its_first_edit_keeps_its_name(editor, another, folder):
    session = editor.new(folder)
    editor.ask(session, "/rename my notes")
    editor.ask(session, "/edit gone.py:3 replace x y")

    [row] = another.request("session/list", {"cwd": str(folder)})["sessions"]

    assert (session, "my notes") == (row["sessionId"], row["title"])


def test_a_session_with_a_failed_edit_is_replayed_too(editor, another, folder):
    session = editor.new(folder)
    editor.ask(session, "/edit gone.py:3 replace x y")

    another.request("session/load", params(session, folder))

    assert "/edit gone.py:3 replace x y" == another.said("user_message_chunk")
    assert "no such file" in another.said()


def test_a_deleted_session_of_edits_alone_is_not_listed(edited, another, folder):
    for _ in range(2):
        assert {} == another.request("session/delete", {"sessionId": edited})

    assert [] == another.request("session/list", {"cwd": str(folder)})["sessions"]
    assert -32002 == another.refused("session/load", params(edited, folder))["code"]


def test_a_session_without_prompts_is_not_listed(editor, another, folder):
    session = editor.new(folder)

    assert [] == another.request("session/list", {"cwd": str(folder)})["sessions"]
    assert -32002 == another.refused("session/load", params(session, folder))["code"]


def test_a_memory_of_edits_that_is_broken_costs_only_itself(editor, another, folder):
    session = editor.new(folder)
    editor.ask(session, "count 2")
    log_edit(session, LoggedEdit("", "an edit", "done"))
    with EDIT_LOG.path_of(session).open("a") as file:
        file.write('{"after": 3}\n[]\nno json\n')

    another.request("session/load", params(session, folder))

    assert "an editcount 2" == another.said("user_message_chunk")


def test_a_conversation_continues_without_a_replay(editor, another, folder):
    session = editor.new(folder)
    editor.ask(session, "count 3")

    answer = another.request("session/resume", params(session, folder))

    assert not another.of("user_message_chunk")
    assert "edit" == answer["modes"]["currentModeId"]
    assert "turn 1" in (another.ask(session, "count 2") and another.said())


def test_a_conversation_of_another_front_end_is_listed_and_replayed(editor, folder):
    with Conversation(SessionRequest()) as conversation:
        list(conversation.ask("count 2"))

    row = editor.request("session/list", {"cwd": str(Path.cwd())})["sessions"][0]
    editor.request("session/load", params(row["sessionId"], folder))

    assert "count 2" == row["title"] == editor.said("user_message_chunk")


def test_the_list_begins_with_the_last_used_and_can_be_of_one_folder(editor, folder):
    (folder / "b").mkdir()
    one, other = editor.new(folder), editor.new(folder / "b")
    for session in (one, other):
        editor.ask(session, "count 2")

    everything = editor.request("session/list")["sessions"]
    some = editor.request("session/list", {"cwd": f"{folder}/"})["sessions"]

    assert [other, one] == [row["sessionId"] for row in everything][:2]
    assert [(one, str(folder))] == [(row["sessionId"], row["cwd"]) for row in some]
    assert all(row["updatedAt"].endswith("Z") for row in everything)


def test_a_long_list_comes_in_pages(editor, folder, monkeypatch):
    monkeypatch.setattr("specchat_editors.acp.stored_sessions.PAGE_SIZE", 2)
    sessions = [editor.new(folder) for _ in range(3)]
    for session in sessions:
        editor.ask(session, "count 2")

    first = editor.request("session/list", {"cwd": str(folder)})
    second = editor.request("session/list", {"cwd": str(folder), "cursor": first["nextCursor"]})

    assert sessions[::-1] == [row["sessionId"] for row in first["sessions"] + second["sessions"]]
    assert "nextCursor" not in second
    assert -32602 == editor.refused("session/list", {"cursor": "nonsense"})["code"]


def test_a_deleted_conversation_is_not_listed(editor, folder):
    session = editor.new(folder)
    editor.ask(session, "count 2")

    for _ in range(2):
        assert {} == editor.request("session/delete", {"sessionId": session})

    assert [] == editor.request("session/list", {"cwd": str(folder)})["sessions"]
    assert -32002 == editor.refused("session/load", params(session, folder))["code"]


def test_a_closed_session_is_unknown_until_it_is_loaded(editor, folder):
    session = editor.new(folder)
    editor.ask(session, "count 2")

    for _ in range(2):
        editor.request("session/close", {"sessionId": session})

    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "count 2"}]}
    assert {"sessionId": session} == editor.refused("session/prompt", prompt)["data"]
    editor.request("session/load", params(session, folder))
    assert "end_turn" == editor.ask(session, "count 2")["stopReason"]


def test_closing_ends_what_runs(editor, folder):
    session = editor.new(folder)
    prompt = editor.send_prompt(session, "slowly 100000")
    editor.until(editor.said)

    editor.request("session/close", {"sessionId": session})

    assert "cancelled" == editor.wait(prompt)["result"]["stopReason"]


@pytest.mark.parametrize("session", ["nobody", "", "1"])
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_an_unknown_conversation_is_not_found(editor, folder, method, session):
    error = editor.refused(method, params(session, folder))

    assert (-32002, {"sessionId": session}) == (error["code"], error["data"])


@pytest.mark.parametrize("cwd", ["relative", "/no/such/folder", "/dev/null", "/x\0y", "/" + 5000 * "x"])
def test_a_session_needs_a_folder(editor, cwd):
    assert -32602 == editor.refused("session/new", {"cwd": cwd, "mcpServers": []})["code"]


def test_servers_may_be_left_out(editor, folder):
    assert editor.request("session/new", {"cwd": str(folder)})["sessionId"]


def test_choices_are_offered_as_options_and_modes(editor, folder):
    opened = editor.request("session/new", {"cwd": str(folder), "mcpServers": []})

    options = {option["id"]: option for option in opened["configOptions"]}
    assert ["mode", "model", "profile", "variant"] == list(options)
    assert all("select" == option["type"] for option in options.values())
    assert "chat" == options["profile"]["currentValue"]
    assert "edit" == options["mode"]["currentValue"] == opened["modes"]["currentModeId"]


def test_a_mode_is_an_option_and_an_option_a_mode(editor, folder):
    session = editor.new(folder)

    editor.request("session/set_mode", {"sessionId": session, "modeId": "ask"})
    [option] = editor.until(lambda: editor.of("config_option_update"))
    chosen = {"sessionId": session, "configId": "mode", "value": "auto"}
    answer = editor.request("session/set_config_option", chosen)

    assert "ask" == option["configOptions"][0]["currentValue"]
    assert "auto" == answer["configOptions"][0]["currentValue"]
    assert ["ask", "auto"] == [update["currentModeId"] for update in editor.of("current_mode_update")]


def test_a_variant_holds_from_the_next_question_on(editor, folder):
    session = editor.new(folder)

    editor.request("session/set_config_option", {"sessionId": session, "configId": "variant", "value": "plain"})
    editor.ask(session, "count 2")
    editor.ask(session, "/why")

    assert "no drafter (plain decoding)" in editor.said()


def test_a_profile_can_be_chosen_in_a_menu_and_by_a_command(editor, folder):
    session = editor.new(folder)

    editor.request("session/set_config_option", {"sessionId": session, "configId": "profile", "value": "code"})
    editor.ask(session, "/profile")
    assert "profile code;" in editor.said()
    editor.ask(session, "/profile creative")

    assert "creative" == editor.of("config_option_update")[-1]["configOptions"][2]["currentValue"]


def test_the_menu_of_models_has_those_that_can_run_here_and_a_choice_holds(editor, folder):
    session = editor.new(folder)
    chosen = {"sessionId": session, "configId": "model", "value": "embedded"}

    [_mode, model, *_others] = editor.request("session/set_config_option", chosen)["configOptions"]
    editor.ask(session, "/profile")
    resumed = editor.request("session/load", params(session, folder))["configOptions"][1]

    assert ("model", "embedded") == (model["category"], model["currentValue"])
    assert "embedded" in [each["value"] for each in model["options"]]
    assert "embedded" == resumed["currentValue"]


def test_a_choice_that_loads_a_model_says_what_is_loaded_and_that_it_takes_a_while(editor, folder):
    session = editor.new(folder)
    editor.ask(session, "count 2")

    editor.request("session/set_config_option", {"sessionId": session, "configId": "profile", "value": "plain"})

    editor.until(lambda: "loaded before the next answer" in editor.said())
    assert "embedded (" in editor.said()
    assert "loaded before the next answer; this can take a while." in editor.said()


def test_a_choice_whose_models_are_loaded_says_nothing(editor, folder):
    session = editor.new(folder)
    editor.ask(session, "count 2")

    editor.request("session/set_config_option", {"sessionId": session, "configId": "model", "value": "embedded"})
    editor.ask(session, "count 2")

    assert "loaded before" not in editor.said()


def test_an_answer_in_progress_keeps_its_model(editor, folder):
    session = editor.new(folder)
    prompt = editor.send_prompt(session, "slowly 40")
    editor.until(lambda: "word2" in editor.said())

    editor.request("session/set_config_option", {"sessionId": session, "configId": "profile", "value": "rag"})

    assert "end_turn" == editor.wait(prompt)["result"]["stopReason"]
    assert "word38" in editor.said()
    assert "loaded before the next answer" not in editor.said()
    editor.until(lambda: "loaded before the next answer" in editor.said())


def test_a_model_that_fits_in_fewer_bits_only_is_chosen_with_them():
    models = (RunnableModel("org/big", "20 GiB", "nf4"), RunnableModel("org/small", "1 GiB"))
    config = SessionConfig(read_settings(), runnable=models)

    big = config.with_option("model", "org/big")
    assert {"models.target": "org/big", "models.weights": "nf4"} == big.settings.changes
    assert {"models.target": "org/small"} == big.with_option("model", "org/small").settings.changes


@pytest.mark.parametrize(
    ("option", "value"), [("mode", "wild"), ("model", "org/none"), ("profile", "none"), ("variant", "x"), ("x", "y")]
)
def test_what_cannot_be_chosen_is_refused(editor, folder, option, value):
    chosen = {"sessionId": editor.new(folder), "configId": option, "value": value}

    assert -32602 == editor.refused("session/set_config_option", chosen)["code"]


def test_a_trusted_project_file_applies_to_a_session(runtime, folder):
    (folder / ".specchat.toml").write_text("limits.answer = 77\n")
    options = {"profile": "chat", "exact": None} | {parameter_name(flag): None for flag in KEY_BY_FLAG}
    before = session_request_for(options, folder)
    project_trust().record(find_project_file(folder), is_trusted=True)

    assert "limits.answer" not in before.settings.options
    assert 77 == session_request_for(options, folder).settings.options["limits.answer"]
    assert "limits.answer" not in session_request_for(options, folder.parent).settings.options


def test_the_edit_log_of_an_earlier_version_is_read(runtime):
    record = {"after": "turn-1", "asked": "/edit a.py shorten", "said": "a.py: 1 change written.", "offer": None}
    path = EDIT_LOG.path_of("old-session")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record) + "\n")

    expected = LoggedEdit("turn-1", "/edit a.py shorten", "a.py: 1 change written.")
    assert [expected] == logged_edits("old-session")


def test_thinking_is_replayed_before_its_answer():
    turn = StoredTurn("t", None, {"text": "why?"}, StoredAnswer("so", thinking="hm"), "stop", {}, 0.0, None)

    updates = [(update["sessionUpdate"], update["content"]["text"]) for update in replay_updates([turn], [], {})]

    assert updates == [("user_message_chunk", "why?"), ("agent_thought_chunk", "hm"), ("agent_message_chunk", "so")]
