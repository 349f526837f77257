"""Tool calls on the wire and in the history: events of their own, stored beside the answer and given back with it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from specchat.chat.events import Finished, TextDelta, ToolCallDelta, Totals
from specchat.chat.request import Request
from specchat.chat.tools import ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader, StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host.event_batches import EventBatcher, PartialAnswer
from specchat.host.protocol import events_from_json, request_to_json, turn_from_json, turn_to_json
from specchat.host.session_turns import turn_of_stored
from tests.each_row import each_row

CALLS = (ToolCall("call_1", "weather", '{"city": "Ulm"}'), ToolCall("call_2", "time", "{}"))
RESULTS = (ToolResult("call_1", "weather", "dry"), ToolResult("call_2", "time", "late", is_error=True))
EVENTS = [
    TextDelta("Let me see."), ToolCallDelta(0, "call_1", "weather"), ToolCallDelta(0, "call_1", arguments='{"city"'),
    ToolCallDelta(0, "call_1", arguments=': "Ulm"}'), ToolCallDelta(1, "call_2", "time"),
    ToolCallDelta(1, "call_2", arguments="{}"), Finished("tool_calls", Totals()),
]  # fmt: skip


def test_arguments_are_merged_and_keep_their_place():
    batcher = EventBatcher()

    sent = [event for each in EVENTS for note in batcher.add(each, 0.0)
            for event in events_from_json(note.method, note.params)]  # fmt: skip

    assert sent == [*EVENTS[:2], ToolCallDelta(0, "call_1", arguments=CALLS[0].arguments), *EVENTS[4:]]


def test_a_partial_answer_has_the_calls_so_far():
    partial = PartialAnswer()
    for event in EVENTS[:3]:
        partial.on_event(event)

    assert partial.to_stored().tool_calls == (ToolCall("call_1", "weather", '{"city"'),)
    for event in EVENTS[3:]:
        partial.on_event(event)
    assert partial.to_stored().tool_calls == CALLS


def test_the_history_gives_calls_and_results_back(tmp_path):
    answer = StoredAnswer("Let me see.", tool_calls=CALLS)
    with closing(HistoryWriter(tmp_path / "history.sqlite")) as writer:
        writer.start_turn(Thread("t1", "a talk", tip="a"), "a", None, request_to_json(Request("Rain?")))
        writer.finish_turn("a", answer, "tool_calls", {})
        writer.start_turn(Thread("t1", "a talk", tip="b"), "b", "a", request_to_json(Request("", tool_results=RESULTS)))
        writer.finish_turn("b", StoredAnswer("Dry."), "stop", {})

    with closing(HistoryReader(tmp_path / "history.sqlite")) as reader:
        first, second = map(turn_of_stored, reader.turns("b"))

    assert first.tool_calls == CALLS and first.is_finished
    assert second.tool_results == RESULTS and second.user == ""


@each_row(
    "turn", [Turn("Rain?", answer="Let me see.", tool_calls=CALLS), Turn("", answer="Dry.", tool_results=RESULTS)]
)
def test_a_turn_of_a_client_arrives_as_it_was_sent(turn):
    assert turn_from_json(turn_to_json(turn)) == replace(turn, is_finished=True)


def test_calls_with_other_fields_are_refused():
    with pytest.raises(UsageError, match="a ToolCall has other fields"):
        turn_from_json({"user": "Rain?", "answer": "", "tool_calls": [{"name": "x"}]})
