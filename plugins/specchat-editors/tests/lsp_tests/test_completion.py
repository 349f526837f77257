"""Inline completions from the view of an editor: over pipes, with the fake engine."""

from __future__ import annotations

import time
from contextlib import ExitStack
from threading import Event as Flag

import pytest

from lsp_tests.driver import at
from specchat.chat.events import PrefillProgress
from specchat.host import host_connection, spawn
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from tests.host.fork_server import forked_host

INLINE = "textDocument/inlineCompletion"


def only_item(editor, place):
    """What is suggested; who asks also gets the first of its lines alone."""
    items = editor.result(INLINE, place)["items"]
    if "\n" in items[0]["insertText"].strip() and place["context"]["triggerKind"] == 1:
        assert items.pop()["insertText"] == items[0]["insertText"].rstrip().partition("\n")[0]
    assert len(items) == 1, items
    return items[0]


def test_a_suggestion_begins_at_the_word_and_ends_at_the_cursor(editor):
    editor.open("# fill: ount = 1\nx = 2\nc\n")

    item = only_item(editor, at(2, 1))

    assert item["insertText"] == "count = 1"
    assert item["range"] == {"start": {"line": 2, "character": 0}, "end": {"line": 2, "character": 1}}


def test_typing_along_a_suggestion_sends_no_request(editor, asked):
    editor.open("# fill: total = 1\n\n")
    only_item(editor, at(1, 0))
    before = asked()

    editor.type(1, 0, "tot")
    item = only_item(editor, at(1, 3, is_asked=False))

    assert item["insertText"] == "total = 1"
    assert asked() == before


def test_typing_another_character_sends_a_request(editor, asked):
    editor.open("# fill: total = 1\n\n")
    only_item(editor, at(1, 0))
    before = asked()

    editor.type(1, 0, "x")
    only_item(editor, at(1, 1))

    assert len(asked()) == len(before) + 1


def test_columns_count_utf16_units(editor):
    editor.open("# fill: )\n\nprint('😀', 'é'\n")

    item = only_item(editor, at(2, 15))

    assert item["range"]["start"] == item["range"]["end"] == {"line": 2, "character": 15}
    editor.type(2, 15, "é")
    assert only_item(editor, at(2, 16))["range"]["start"] == {"line": 2, "character": 15}


@pytest.mark.full
def test_columns_count_bytes_where_the_editor_does(start):
    editor = start()
    answer = editor.begin({"debounceMs": 0}, {"general": {"positionEncodings": ["utf-8", "utf-16"]}})
    editor.is_loaded()
    editor.open("# fill: )\n\nprint('😀'\n")

    item = only_item(editor, at(2, 12))

    assert answer["capabilities"]["positionEncoding"] == "utf-8"
    assert item["range"]["start"] == {"line": 2, "character": 12}
    assert editor.close() == 0


def test_a_closing_bracket_that_is_there_already_is_replaced(editor):
    editor.open("# fill: a, b):\\n    return a\n\ndef add()\n")

    item = only_item(editor, at(2, 8))

    assert item["insertText"] == "a, b):\n    return a"
    assert item["range"] == {"start": {"line": 2, "character": 8}, "end": {"line": 2, "character": 9}}


def test_only_an_invoked_completion_has_its_first_line_as_a_second_item(editor):
    editor.open("# fill: (a):\\n    return a\ndef f\n")

    asked = editor.result(INLINE, at(1, 5))["items"]
    editor.type(1, 5, "")
    typed = editor.result(INLINE, at(1, 5, is_asked=False))["items"]

    assert [item["insertText"] for item in asked] == ["f(a):\n    return a", "f(a):"]
    assert asked[0]["range"] == asked[1]["range"]
    assert [item["insertText"] for item in typed] == ["f(a):\n    return a"]


def test_a_newer_wish_ends_the_older_one(editor, asked):
    editor.open("# slowly: a\n\n")
    first = editor.request(INLINE, at(1, 0))
    while len(asked()) < 1:
        time.sleep(0.01)

    editor.type(1, 0, "# fill: b\n")
    second = only_item(editor, at(2, 0))

    assert editor.answer(first)["result"]["items"] == []
    assert second["insertText"] == "b"
    assert asked()[1] == "cancelled"


def test_a_cancelled_request_stops_the_engine_and_says_so(editor, asked):
    editor.open("# slowly: a\n\n")
    request = editor.request(INLINE, at(1, 0))
    while len(asked()) < 1:
        time.sleep(0.01)

    editor.notify("$/cancelRequest", id=request)

    assert editor.answer(request)["error"]["code"] == -32800
    while asked()[-1] != "cancelled":
        time.sleep(0.01)


def test_typing_quickly_asks_the_engine_once(start, asked):
    editor = start()
    editor.begin({"debounceMs": 200})
    editor.is_loaded()
    editor.open("# fill: zzz\n\n")
    requests = []
    for column, letter in enumerate("word"):
        editor.type(1, column, letter, version=2 + column)
        requests.append(editor.request(INLINE, at(1, column + 1, is_asked=False)))

    found = [len(editor.answer(request)["result"]["items"]) for request in requests]

    assert found == [0, 0, 0, 1]
    assert len(asked()) == 1
    assert editor.close() == 0


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("# fill: x\nfoo(a, b)\n", 1, 4), ("# fill: x\n#\n", 1, 1)],
    ids=["amid a line", "an empty comment"],
)
def test_there_is_no_automatic_completion_inside_a_line_or_an_empty_comment(editor, text, line, column):
    editor.open(text)

    assert editor.result(INLINE, at(line, column, is_asked=False))["items"] == []
    assert editor.result(INLINE, at(line, column))["items"]


def test_an_automatic_completion_has_at_most_three_lines(editor, asked):
    editor.open("# fill: a\\nb\\nc\\nd\n\n")

    assert only_item(editor, at(1, 0, is_asked=False))["insertText"] == "a\nb\nc"
    assert asked()[-1].endswith(" 64 3")


def test_a_completion_that_the_limit_cuts_has_no_half_name(editor):
    editor.open("# cut: compute(first, second_val\nx = \n")

    assert only_item(editor, at(1, 4))["insertText"] == "compute(first"


def test_a_selected_entry_of_the_editors_list_is_continued(editor):
    editor.open("# fill: _all()\n\nfo\n")
    span = {"start": {"line": 2, "character": 0}, "end": {"line": 2, "character": 2}}

    item = only_item(editor, at(2, 2, selectedCompletionInfo={"range": span, "text": "format"}))

    assert item == {"insertText": "format_all()", "range": span}


def test_a_text_that_is_not_open_gets_nothing(editor):
    assert editor.result(INLINE, at(0, 0, uri="file:///etc/passwd"))["items"] == []


def test_an_engine_that_fails_is_no_message_box(editor):
    editor.open("# crash\n\n")

    assert editor.result(INLINE, at(1, 0))["items"] == []
    assert not [notice for notice in editor.notices if notice["method"] == "window/showMessage"]


def test_while_the_model_loads_there_is_nothing_and_one_progress_bar(start, fresh_world):
    editor = start(world=fresh_world)
    editor.begin({"profile": "late"})
    editor.open("# fill: x\n\n")

    assert editor.result(INLINE, at(1, 0))["items"] == []
    editor.is_loaded()

    assert editor.wait_for("$/progress")["value"]["kind"] == "begin"
    assert editor.wait_for("$/progress")["value"]["kind"] == "end"
    assert not [notice for notice in editor.notices if notice["method"] == "window/workDoneProgress/create"][1:]
    assert editor.close() == 0


@pytest.fixture
def answer_in_progress(fresh_world, monkeypatch):
    """Returns a function that starts an answer in another client of the host; the function that it returns ends it."""
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(fresh_world))
    monkeypatch.setattr(spawn, "HOST_COMMAND", forked_host("tests.host.completion_host"))
    monkeypatch.setattr(host_connection, "configuration_hash", lambda: "fake")
    with ExitStack() as open_now:

        def start():
            talk, cancelled = open_now.enter_context(Conversation(SessionRequest(settings=read_settings()))), Flag()
            events = talk.ask("read", cancelled)
            while not isinstance(next(events), PrefillProgress):
                pass

            def end() -> None:
                cancelled.set()
                assert list(events)

            return end

        yield start


def test_while_the_model_waits_for_another_answer_the_progress_bar_says_so(start, fresh_world, answer_in_progress):
    end_answer = answer_in_progress()
    editor = start(world=fresh_world)
    editor.begin({"profile": "late"})
    editor.open("# fill: x\n\n")

    assert editor.result(INLINE, at(1, 0))["items"] == []
    begun, waiting = (editor.wait_for("$/progress")["value"] for _ in range(2))
    end_answer()
    later = [editor.wait_for("$/progress")["value"]]
    while later[-1]["kind"] != "end":
        later.append(editor.wait_for("$/progress")["value"])

    assert begun["kind"] == "begin"
    assert waiting["message"] == "late is loaded when the running answer ends"
    assert "message" not in later[-1]
    assert [each["insertText"] for each in editor.result(INLINE, at(1, 0))["items"]] == ["x"]
    assert editor.close() == 0


def test_an_editor_without_progress_bars_gets_a_message_about_the_waiting(start, fresh_world, answer_in_progress):
    end_answer = answer_in_progress()
    editor = start(world=fresh_world)
    editor.begin({"profile": "late"}, {"window": {}})
    editor.open("# fill: x\n\n")
    editor.result(INLINE, at(1, 0))

    said = editor.wait_for("window/showMessage")["message"]
    editor.result(INLINE, at(1, 0))
    end_answer()

    assert said == "specchat: waiting for the model: late is loaded when the running answer ends"
    assert not [notice for notice in editor.notices if notice["method"] == "window/showMessage"]
    assert editor.close() == 0


def test_an_editor_without_grey_text_may_have_it_in_its_list(start):
    editor = start()
    capabilities = editor.begin({"completion": True})["capabilities"]
    editor.is_loaded()
    editor.open("# fill: ount = 1\nc\n")

    place = {key: value for key, value in at(1, 1).items() if key != "context"}
    items = editor.result("textDocument/completion", place)["items"]

    assert "completionProvider" in capabilities
    assert [item["textEdit"]["newText"] for item in items] == ["count = 1"]
    assert editor.close() == 0


def test_the_editor_is_told_once_that_a_model_does_not_fill_gaps(start):
    editor = start()
    editor.begin({"debounceMs": 0})
    editor.is_loaded()
    editor.open("# continue: 1\nx = \n\n")
    for line in (1, 2, 1):
        editor.result(INLINE, at(line, 0))

    log = editor.wait_for("window/logMessage")["message"]
    told = [each["params"]["message"] for each in editor.notices if each["method"] == "window/showMessage"]
    assert "fills the gap" in log
    assert len(told) == 1
    assert told[0].startswith(
        "specchat: the model continues; models such as Qwen/Qwen2.5-Coder-0.5B-Instruct fill gaps"
    )
    assert editor.close() == 0


def test_the_editor_is_told_of_the_plugin_that_completes(start, monkeypatch):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "editors")
    editor = start()
    editor.begin({"debounceMs": 0})

    told = editor.wait_for("window/showMessage")["message"]

    assert told.startswith("specchat: completions need a plugin: ")
    assert told.endswith("'pip install ./plugins/specchat-completions'")
    assert editor.close() == 0
