"""Notices after an answer: another drafter, and a nearly full context. Events in, lines out."""

from __future__ import annotations

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.notices import DrafterTracker, Notices
from specchat.app.question import Question
from specchat.chat.events import CommittedToken, Finished, Routed, StepDone, Totals
from specchat.chat.router import PINNED
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from tests.front import command, events_of

EXPLAINING = "an explanation is predictable but rarely a copy, so draft is tried first"
NOTHING = Totals()
EDITING = "an edit repeats most of its text, so lookup is tried first, then suffix"


def step(*sources: str) -> StepDone:
    ids = tuple(range(1, len(sources) + 1))
    return StepDone(ids, (0,) * len(ids), (CommittedToken(9, b"x", "target"),), 0.001, 0.01, (), sources)


def answer(*steps: StepDone, reason: str = EXPLAINING, totals: Totals = NOTHING) -> list:
    return [Routed("auto", 8, reason, 1), *steps, Finished("stop", totals)]


def notice_of(tracker: DrafterTracker, *events) -> str:
    """The lines of one answer."""
    return "".join(tracker.on_event(event) for event in events)


@pytest.fixture
def tracker() -> DrafterTracker:
    """A tracker after an answer with lookup."""
    tracker = DrafterTracker()
    assert notice_of(tracker, *answer(*[step("lookup")] * 20)) == ""
    return tracker


def test_a_new_drafter_is_noted_with_its_share_of_steps(tracker):
    events = answer(*[step("draft")] * 18, *[step("lookup")] * 4)

    assert "drafter changed from lookup to draft: in 18 of 22 steps" == notice_of(tracker, *events)


def test_another_kind_of_question_is_the_reason_when_it_changed(tracker):
    events = answer(*[step("suffix")] * 20, reason=EDITING)

    assert "drafter changed from lookup to suffix: an edit repeats most of its text" == notice_of(tracker, *events)


def test_the_same_drafter_is_not_noted(tracker):
    assert "" == notice_of(tracker, *answer(*[step("lookup")] * 20, reason=EDITING))


def test_a_few_steps_of_another_drafter_are_no_change(tracker):
    assert "" == notice_of(tracker, *answer(*[step("draft")] * 12, *[step("lookup")] * 10))
    assert "" == notice_of(tracker, *answer(*[step("draft", "lookup")] * 20))


def test_a_short_answer_is_ignored(tracker):
    assert "" == notice_of(tracker, *answer(*[step("draft")] * 5))
    assert "" == notice_of(tracker, *answer(*[step("lookup")] * 20))


def test_a_pause_is_noted_with_its_speedup_and_so_is_its_end(tracker):
    slow = Totals(completion_tokens=40, draft_tokens=8, plain_decode_seconds=0.36, verify_seconds=0.4)

    assert (
        "drafter changed from lookup to none (plain decoding): draft tokens in 2 of 40 steps, 0.9x plain"
        == notice_of(tracker, *answer(*[step("lookup")] * 2, *[step()] * 38, totals=slow))
    )
    assert "" == notice_of(tracker, *answer(*[step("lookup")] * 6, *[step()] * 34))
    assert "drafter changed from none (plain decoding) to lookup: in 20 of 40 steps" == notice_of(
        tracker, *answer(*[step("lookup"), step()] * 20)
    )


def test_a_pinned_drafter_is_no_change(tracker):
    assert "" == notice_of(tracker, *answer(*[step("draft")] * 20, reason=PINNED))
    assert "" == notice_of(tracker, *answer(*[step("draft")] * 20))


def test_without_draft_sources_the_accepted_tokens_name_the_drafter(tracker):
    held = StepDone((1, 2), (0, 1), (CommittedToken(1, b"x", "draft"), CommittedToken(9, b"x", "target")), 0.001, 0.01)

    assert notice_of(tracker, *answer(*[held] * 20)).startswith("drafter changed from lookup to draft")


def lines_at(notices: Notices, *fillings: int, window: int = 1000) -> list[int]:
    """The number of notices while the context fills."""
    counts = []
    for tokens in fillings:
        notices.on_event(Finished("stop", Totals(prompt_tokens=tokens - 10, completion_tokens=10)), window)
        counts.append(len(notices.lines))
    return counts


def test_a_nearly_full_context_is_noted_once_while_it_fills():
    notices = Notices()

    assert [0, 0, 1, 0, 0, 1] == lines_at(notices, 100, 900, 930, 990, 100, 910)
    assert ("the context is 91% full; /compact summarizes this conversation and continues in a copy",) == notices.lines


def test_without_a_known_window_there_is_no_notice():
    assert [0] == lines_at(Notices(), 10**6, window=0)


@pytest.fixture
def chat(runtime) -> ChatState:
    return ChatState(Conversation(SessionRequest(settings=read_settings("narrow"))))  # 512 tokens


def ask(chat: ChatState, question: str) -> tuple[str, ...]:
    return events_of(chat, Question(question))[-1].notices


def test_every_conversation_has_its_own_notices(chat):
    assert ask(chat, "count 236")[0].startswith("the context is 93% full")
    assert () == ask(chat, "count 237")
    chat.conversation.switch_session(chat.conversation.call("fork"))

    assert 1 == len(ask(chat, "count 236"))


def test_notices_belong_to_the_last_answer(chat):
    ask(chat, "count 236")
    assert () == ask(chat, "count 3")


def test_a_request_that_does_not_fit_after_others_suggests_compact(chat):
    too_long = "fail"

    assert () == ask(chat, too_long)
    assert ("/compact summarizes this conversation and continues in a copy",) == ask(chat, too_long)


def test_the_line_mode_prints_notices_after_the_numbers(runtime, monkeypatch):
    ran = command(monkeypatch, "chat", "-P", "narrow", stdin=b"count 236\ncount 3\n")

    assert 0 == ran.code
    assert 1 == ran.err.count("the context is 93% full; /compact")
    assert ran.err.index("tokens/step") < ran.err.index("the context is")
