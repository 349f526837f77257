"""Prompts and answers: the updates of a turn, and how it ends."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from acp_tests.driver import Editor, Json
from specchat.history.history_reader import HistoryReader
from specchat.host.spawn import history_path
from tests.host.conftest import kill_host


def link(path: Path) -> Json:
    return {"type": "resource_link", "uri": path.as_uri(), "name": path.name}


def last_question(session: str) -> tuple[str, list[Json]]:
    """What reached the engine."""
    with closing(HistoryReader(history_path())) as history:
        request = history.turns(history.thread(session).tip)[-1].request
    return request["text"], request["files"]


def stop(editor: Editor, session: str) -> None:
    editor.notify("session/cancel", {"sessionId": session, "reason": "some editors give one"})


def test_initialize_lists_the_capabilities(stranger):
    hello = stranger.initialize()

    assert 1 == hello["protocolVersion"]
    assert "specchat" == hello["agentInfo"]["name"]
    assert hello["agentCapabilities"]["loadSession"]
    assert {"list", "resume", "close", "delete", "additionalDirectories"} == set(
        hello["agentCapabilities"]["sessionCapabilities"]
    )
    assert [] == hello["authMethods"]


def test_an_answer_arrives_in_chunks_and_its_usage_with_the_response(editor, folder):
    session = editor.new(folder)

    end = editor.ask(session, "count 5")

    assert "end_turn" == end["stopReason"]
    assert editor.said().startswith("word0 word1 word2 word3 seed")
    assert len(editor.of("agent_message_chunk")) > 1
    assert 1 == len({chunk["messageId"] for chunk in editor.of("agent_message_chunk")})
    assert {"draftTokens", "acceptedTokens", "steps", "ttftMs", "tokensPerSecond"} <= set(end["_meta"]["specchat"])
    assert 5 == end["_meta"]["specchat"]["steps"]
    assert end["usage"]["totalTokens"] == editor.of("usage_update")[0]["used"]


def test_a_long_text_is_sent_in_several_chunks(editor, folder):
    editor.ask(editor.new(folder), "big 30000")

    assert "x" * 30000 == editor.said()
    assert 4096 == max(len(chunk["content"]["text"]) for chunk in editor.of("agent_message_chunk"))


def test_the_conversation_is_named_after_its_first_question_and_only_once(editor, folder):
    session = editor.new(folder)

    editor.ask(session, "count 2")
    editor.ask(session, "count 3")

    assert ["count 2"] == [update["title"] for update in editor.of("session_info_update")]


def test_the_menu_follows_a_new_session(editor, folder):
    editor.new(folder)
    [menu] = editor.until(lambda: editor.of("available_commands_update"))

    assert {"help", "edit", "undo", "why"} <= {command["name"] for command in menu["availableCommands"]}
    assert "new" not in {command["name"] for command in menu["availableCommands"]}


def test_a_cancel_keeps_the_partial_and_the_session(editor, folder):
    session = editor.new(folder)
    prompt = editor.send_prompt(session, "slowly 100000")
    editor.until(editor.said)

    stop(editor, session)

    assert "cancelled" == editor.wait(prompt)["result"]["stopReason"]
    assert editor.said().startswith("word0 ")
    assert "turn 1" in (editor.ask(session, "count 2") and editor.said())


def test_a_cancel_ends_a_prompt_that_is_still_being_read(editor, folder):
    session = editor.new(folder)
    prompt = editor.send_prompt(session, "read")

    stop(editor, session)

    assert "cancelled" == editor.wait(prompt)["result"]["stopReason"]


def test_a_cancel_of_nothing_is_ignored(editor, folder):
    session = editor.new(folder)

    stop(editor, session)
    stop(editor, "nobody")

    assert "end_turn" == editor.ask(session, "count 2")["stopReason"]


def test_no_update_follows_the_response_of_a_turn(editor, folder):
    session = editor.new(folder)
    for _ in range(5):
        prompt = editor.send_prompt(session, "slowly 100000")
        editor.until(editor.said)
        stop(editor, session)
        editor.wait(prompt)
        heard = len(editor.of("agent_message_chunk"))
        editor.request("session/list")

        assert heard == len(editor.of("agent_message_chunk"))
        editor.updates.clear()


def test_prompts_of_a_session_wait_for_each_other(editor, folder):
    session = editor.new(folder)

    first, second = editor.send_prompt(session, "slowly 20"), editor.send_prompt(session, "count 2")
    editor.wait(second)

    answers = [message["id"] for message in editor.heard if message.get("id") in (first, second)]
    ends = next(place for place, message in enumerate(editor.heard) if message.get("id") == first)
    ids = [
        message["params"]["update"]["messageId"]
        for message in editor.heard[ends:]
        if message.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    ]
    assert [first, second] == answers
    assert 1 == len(set(ids))


def test_a_cancel_answers_those_that_wait_as_well(editor, folder):
    session = editor.new(folder)
    prompts = [editor.send_prompt(session, "slowly 100000") for _ in range(4)]
    editor.until(editor.said)

    stop(editor, session)

    assert 4 * ["cancelled"] == [editor.wait(prompt)["result"]["stopReason"] for prompt in prompts]


def test_more_than_eight_that_wait_are_refused(editor, folder):
    session = editor.new(folder)
    prompts = [editor.send_prompt(session, "slowly 100000") for _ in range(10)]

    assert -32600 == editor.wait(prompts[-1])["error"]["code"]
    stop(editor, session)
    assert 9 * ["cancelled"] == [editor.wait(prompt)["result"]["stopReason"] for prompt in prompts[:-1]]


def test_one_prompt_can_be_cancelled_by_its_number(editor, folder):
    session = editor.new(folder)
    first, second = editor.send_prompt(session, "slowly 30"), editor.send_prompt(session, "slowly 100000")

    editor.notify("$/cancel_request", {"requestId": second})

    assert "cancelled" == editor.wait(second)["result"]["stopReason"]
    assert "end_turn" == editor.wait(first)["result"]["stopReason"]


def test_two_sessions_talk_side_by_side(editor, folder):
    one, other = editor.new(folder), editor.new(folder)

    slow = editor.send_prompt(one, "slowly 100000")
    editor.until(editor.said)

    assert "end_turn" == editor.ask(other, "count 2")["stopReason"]
    stop(editor, one)
    assert "cancelled" == editor.wait(slow)["result"]["stopReason"]


def test_a_linked_file_travels_with_the_question(editor, folder):
    file = folder / "a.txt"
    file.write_text("one two")
    session = editor.new(folder)

    editor.ask(session, "what is in", link(file))

    assert ("what is in `a.txt`", [{"name": "a.txt", "text": "one two"}]) == last_question(session)


def test_a_file_named_in_plain_words_travels_with_the_question(editor, folder):
    (folder / "a.txt").write_text("one two")
    session = editor.new(folder)

    editor.ask(session, "what does a.txt say, and what e.g. gone.txt?")

    assert [{"name": "a.txt", "text": "one two"}] == last_question(session)[1]


def test_a_named_file_outside_the_folders_is_only_a_word(editor, folder):
    (folder / "secret.txt").write_text("one two")
    (folder / "project").mkdir()
    session = editor.new(folder / "project")

    editor.ask(session, f"what does ../secret.txt say, and {folder}/secret.txt?")

    assert not last_question(session)[1]


def test_a_linked_file_is_what_the_editor_has_in_its_buffer(full, folder):
    file = folder / "a.txt"
    file.write_text("saved")
    full.answers["fs/read_text_file"] = lambda params: {"content": f"unsaved {Path(params['path']).name}"}
    session = full.new(folder)

    full.ask(session, "what is in", link(file))

    assert [{"name": "a.txt", "text": "unsaved a.txt"}] == last_question(session)[1]


def test_a_buffer_that_the_editor_will_not_show_is_read_from_the_disk(full, folder):
    def refuse(_params):
        raise LookupError("no such buffer")

    file = folder / "a.txt"
    file.write_text("saved")
    full.answers["fs/read_text_file"] = refuse
    session = full.new(folder)

    full.ask(session, "what is in", link(file))

    assert [{"name": "a.txt", "text": "saved"}] == last_question(session)[1]


def test_of_a_file_too_long_for_the_window_the_passages_travel(editor, folder):
    file = folder / "long.py"
    file.write_text("".join(f"def function_{number}():\n    return {number}\n\n\n" for number in range(900)))
    session = editor.new(folder)

    editor.ask(session, "what does function_700 return, says", link(file))

    [first, *_] = last_question(session)[1]
    assert "function_700" in "".join(each["text"] for each in last_question(session)[1])
    assert " lines " in first["name"]
    assert editor.said("agent_thought_chunk")


def test_an_embedded_text_travels_under_its_name(editor, folder):
    resource = {"uri": (folder / "b.txt").as_uri(), "text": "old old"}

    editor.ask(editor.new(folder), "replace old new", {"type": "resource", "resource": resource})

    assert "new new" == editor.said()


def test_a_file_outside_the_folder_is_named_and_not_read(editor, folder):
    (folder / "project").mkdir()
    secret = folder / "secret.txt"
    secret.write_text("the secret")

    editor.ask(editor.new(folder / "project"), "replace secret open", link(secret))

    assert "outside" in editor.said("agent_thought_chunk")
    assert "the open" not in editor.said()


def test_a_text_block_may_require_an_answer_format(editor, folder):
    session = editor.new(folder)
    block = {"type": "text", "text": "count 3", "_meta": {"specchat": {"choices": ["yes", "no"]}}}

    editor.request("session/prompt", {"sessionId": session, "prompt": [block]})

    with closing(HistoryReader(history_path())) as history:
        assert ["yes", "no"] == history.turns(history.thread(session).tip)[-1].request["choices"]


def test_a_form_that_is_none_is_refused(editor, folder):
    block = {"type": "text", "text": "count 3", "_meta": {"specchat": {"schema": "["}}}

    refused = editor.refused("session/prompt", {"sessionId": editor.new(folder), "prompt": [block]})

    assert -32602 == refused["code"]
    assert "not JSON" in str(refused["data"])


def test_a_picture_is_refused(editor, folder):
    session = editor.new(folder)
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}

    assert -32602 == editor.refused("session/prompt", {"sessionId": session, "prompt": [picture]})["code"]


@pytest.mark.parametrize("text", ["fail", "", "/edit", "/variant nobody x"])
def test_a_request_that_fails_is_answered_with_a_message(editor, folder, text):
    end = editor.ask(editor.new(folder), text)

    assert "end_turn" == end["stopReason"]
    assert editor.said()


def test_a_prompt_that_cannot_fit_reaches_no_model(editor, folder):
    end = editor.ask(editor.new(folder), "x" * 2_000_000)

    assert "end_turn" == end["stopReason"]
    assert "the context window has 8192" in editor.said()
    assert not editor.request("session/list", {"cwd": str(folder)})["sessions"]


def test_commands_answer_without_a_model_and_unknown_ones_are_questions(editor, folder):
    session = editor.new(folder)

    editor.ask(session, "/help")
    assert "`/edit FILE[:FIRST-LAST] INSTRUCTION`" in editor.said()
    assert not editor.request("session/list", {"cwd": str(folder)})["sessions"]
    editor.ask(session, "/usr is what?")
    assert "you said '/usr is what?'" in editor.said()


def test_the_last_question_can_be_removed(editor, folder):
    session = editor.new(folder)
    editor.ask(session, "count 2")

    editor.ask(session, "/undo")

    assert "removed: count 2" in editor.said()
    assert "turn 0" in (editor.ask(session, "count 2") and editor.said())


def test_an_engine_that_dies_is_an_error_once_and_started_again(editor, folder):
    session = editor.new(folder)
    prompt = editor.send_prompt(session, "slowly 100000")
    editor.until(editor.said)

    kill_host()

    error = editor.wait(prompt)["error"]
    assert -32603 == error["code"]
    assert "killed" in error["data"]["details"]
    assert "end_turn" == editor.ask(session, "count 2")["stopReason"]


def test_a_conversation_that_is_full_says_what_can_be_done(editor, folder):
    session = editor.new(folder)
    editor.ask(session, "fail")
    alone = editor.said()
    editor.ask(session, "count 2")
    end = editor.ask(session, "fail")

    assert "end_turn" == end["stopReason"]
    assert "/undo" not in alone
    assert "the 1 earlier question" in editor.said()
    assert "start a new session, or remove the last questions with `/undo`" in editor.said()


def test_code_is_explained_and_tests_are_written_by_a_command(editor, folder):
    (folder / "a.py").write_text("x = 1\n")
    session = editor.new(folder)
    editor.ask(session, "/explain `f`")
    editor.ask(session, "/test", link(folder / "a.py"))

    assert "you said 'Explain `f`.'" in editor.said()
    assert "you said 'Write tests for `a.py`.'" in editor.said()


def test_a_file_is_fixed_by_a_command(editor, folder):
    (folder / "a.py").write_text("x = 1\n")
    editor.answers["session/request_permission"] = lambda _params: {
        "outcome": {"outcome": "selected", "optionId": "reject"}
    }
    editor.ask(editor.new(folder), "/fix a.py")

    assert "Rewriting a.py" in editor.tools()
