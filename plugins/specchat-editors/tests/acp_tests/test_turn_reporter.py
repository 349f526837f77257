"""The updates that an editor gets for the events of an answer, without a connection."""

from __future__ import annotations

import pytest

from specchat.chat.events import (
    Failed,
    Finished,
    LoadingProgress,
    PrefillProgress,
    TextDelta,
    ThinkingDelta,
    Totals,
    Waiting,
)
from specchat.errors import HostError, SpecchatError
from specchat_editors.acp.file_edit import RewriteProgress
from specchat_editors.acp.turn_reporter import TurnReporter, stream_answer

LOADING = LoadingProgress("target", 1, 2)


class FakeClient:
    """Records the updates that an editor would get."""

    def __init__(self) -> None:
        self.updates = []

    def send_updates(self, _turn, *updates) -> None:
        self.updates += updates

    @property
    def states(self):
        return [(update.get("title"), update["status"]) for update in self.updates if "toolCallId" in update]


@pytest.fixture
def client():
    return FakeClient()


def answered(client, *events):
    return stream_answer(events, TurnReporter(client, None), window_tokens=100)


def test_loading_a_model_is_a_tool_call_that_ends_with_the_first_text(client):
    response = answered(client, LOADING, LOADING, TextDelta("a"), Finished("stop", Totals()))

    assert [("Loading the target model: 50 %", "in_progress"), (None, "completed")] == client.states
    assert "end_turn" == response["stopReason"]


def test_loading_shows_how_far_it_is(client):
    answered(
        client, *(LoadingProgress("target", done, 1000) for done in range(0, 1000, 5)), TextDelta("a"),
        Finished("stop", Totals()),
    )  # fmt: skip

    shown = [title for title, status in client.states if status == "in_progress"]
    assert ["Loading the target model", "Loading the target model: 10 %"] == shown[:2]
    assert ["Loading the target model: 90 %", (None, "completed")] == [shown[-1], client.states[-1]]
    assert 10 == len(shown)


def test_a_long_prompt_and_the_answer_of_another_client_are_named_and_a_short_prompt_is_not(client):
    answered(
        client, Waiting("another answer"), PrefillProgress(0, 3000), PrefillProgress(1200, 3000),
        PrefillProgress(3000, 3000), TextDelta("a"), Finished("stop", Totals()),
    )  # fmt: skip
    answered(client, PrefillProgress(0, 40), PrefillProgress(40, 40), TextDelta("a"), Finished("stop", Totals()))

    shown = [("Waiting for another answer", "in_progress"), ("Reading 3,000 tokens: 40 %", "in_progress")]
    assert [*shown, (None, "completed")] == client.states


def test_loading_names_each_model(client):
    answered(client, LOADING, LoadingProgress("draft", 0, 2), TextDelta("a"), Finished("stop", Totals()))

    assert ["Loading the target model: 50 %", "Loading the draft model"] == [
        title for title, status in client.states if status == "in_progress"
    ]


def test_a_model_that_cannot_be_loaded_is_a_failed_tool_call(client):
    with pytest.raises(SpecchatError, match="no such model"):
        answered(client, LOADING, Failed("no such model", 7))

    assert (None, "failed") == client.states[-1]


def test_no_tool_call_stays_open_when_the_answer_breaks_off(client):
    with pytest.raises(HostError, match="did not end"):
        answered(client, LOADING)

    assert (None, "failed") == client.states[-1]


def test_only_a_dead_engine_is_an_error_of_the_host(client):
    with pytest.raises(HostError):
        answered(client, Failed("the engine process was killed; ask again", 7))
    with pytest.raises(SpecchatError) as refused:
        answered(client, Failed("no such model", 7))

    assert not isinstance(refused.value, HostError)


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("repetition", "max_tokens"), ("content_filter", "end_turn")],
)
def test_every_finish_reason_has_a_stop_reason(client, reason, stop_reason):
    assert stop_reason == answered(client, Finished(reason, Totals()))["stopReason"]


def test_how_far_a_rewrite_is_shows_in_steps_of_ten(client):
    lines = [f"line {number}\n" for number in range(100)]
    progress = RewriteProgress(TurnReporter(client, None), "work", "Rewriting a.py", "".join(lines))

    for line in lines:
        progress.on_event(TextDelta(line))

    titles = [title for title, _ in client.states]
    assert 10 >= len(titles) >= 8
    assert "Rewriting a.py (10 %)" == titles[0]


def test_thinking_is_sent_as_thoughts_and_the_answer_as_a_message(client):
    answered(client, ThinkingDelta("a" * 5000), TextDelta("b"), Finished("stop", Totals()))

    sent = [(each["sessionUpdate"], each["content"]["text"]) for each in client.updates if "content" in each]
    assert [kind for kind, _ in sent] == ["agent_thought_chunk", "agent_thought_chunk", "agent_message_chunk"]
    assert "".join(text for _, text in sent) == "a" * 5000 + "b"
