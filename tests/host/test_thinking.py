"""Thinking on the wire and in the history: an event of its own, stored beside the answer, never part of the text."""

from __future__ import annotations

from contextlib import closing

from specchat.chat.events import Finished, TextDelta, ThinkingDelta, Totals
from specchat.history.history_reader import HistoryReader, StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host.event_batches import EventBatcher, PartialAnswer
from specchat.host.protocol import EVENT_METHODS, event_to_json, events_from_json
from tests.each_row import each_row

EVENTS = [ThinkingDelta("hm"), ThinkingDelta(", so"), TextDelta("It "), TextDelta("is.")]


def test_a_thought_keeps_its_place_before_the_text():
    batcher = EventBatcher()

    sent = [note for event in [*EVENTS, Finished("stop", Totals())] for note in batcher.add(event, 0.0)]

    assert [(note.method, note.params.get("text")) for note in sent] == [
        ("thinking_delta", "hm"), ("thinking_delta", ", so"), ("text_delta", "It is."), ("finished", None),
    ]  # fmt: skip
    assert [event for note in sent[:3] for event in events_from_json(note.method, note.params)] == [
        ThinkingDelta("hm"), ThinkingDelta(", so"), TextDelta("It is."),
    ]  # fmt: skip


def test_a_client_that_does_not_know_the_event_shows_no_thinking():
    method = EVENT_METHODS[ThinkingDelta]

    assert method != EVENT_METHODS[TextDelta]
    assert events_from_json(f"{method}_of_the_future", event_to_json(ThinkingDelta("hm"))) == []


def test_a_partial_answer_stores_the_thinking_apart():
    partial = PartialAnswer()
    for event in EVENTS:
        partial.on_event(event)

    assert (partial.to_stored().thinking, partial.to_stored().text) == ("hm, so", "It is.")


@each_row("thinking", ["hm, so", ""])
def test_the_history_gives_the_thinking_back_and_does_not_search_it(tmp_path, thinking):
    thread, answer = Thread("t1", "a talk", tip="a"), StoredAnswer("It is.", thinking=thinking)
    with closing(HistoryWriter(tmp_path / "history.sqlite")) as writer:
        writer.start_turn(thread, "a", None, {"text": "Is it?"})
        writer.finish_turn("a", answer, "stop", {})

    with closing(HistoryReader(tmp_path / "history.sqlite")) as reader:
        assert [turn.answer for turn in reader.turns("a")] == [answer]
        assert [found.id for found, _ in reader.search("It is")] == ["t1"]
        assert reader.search("hm") == []
