"""An answer that repeated itself is one text in the history, in a conversation and on the screen.

The repeats have streamed when the answer ends; the end says how many characters they are. For programs, the tests of
specchat-serve hold it.
"""

from __future__ import annotations

from specchat.app.ask import _end
from specchat.chat.events import REPETITION, CommittedToken, Failed, Finished, StepDone, TextDelta, Totals
from specchat.chat.repetition import EXPLANATION
from specchat.chat.request import AnswerFormat, Request
from specchat.history.step_encoding import StepPacker, unpack_steps
from specchat.host.event_batches import PartialAnswer
from specchat.host.protocol import event_to_json, events_from_json
from specchat.tui.live_stats import LiveStats


def step(*tokens: int) -> StepDone:
    committed = tuple(CommittedToken(token, b"x", "suffix") for token in tokens)
    return StepDone(tokens, tuple(range(len(tokens))), committed, 0.0, 0.1)


TEXT, REPEATS = "one two. ", "two. two. two. "
STEPS = (step(1, 2), step(2, 2, 2))
TOTALS = Totals(completion_tokens=3, steps=2, seconds=1.0, repeated_tokens=2)
END = Finished(REPETITION, TOTALS, EXPLANATION, len(REPEATS))
EVENTS = (TextDelta(TEXT), STEPS[0], TextDelta(REPEATS), STEPS[1], END)


def test_it_is_stored_without_the_repeats():
    partial, packer = PartialAnswer(), StepPacker()
    for event in EVENTS:
        partial.on_event(event)
    for each in STEPS:
        packer.add(each)
    packer.cut(TOTALS.completion_tokens)

    stored = partial.to_stored()
    assert (stored.text, stored.token_ids, len(stored.source_indices)) == (TEXT, (1, 2, 2), 3)
    assert [each.tokens for each in unpack_steps(packer.packed())] == [2, 1]


def test_the_end_says_it_to_every_client():
    assert events_from_json("finished", event_to_json(END)) == [END]


def test_the_status_bar_forgets_the_steps_of_the_loop():
    stats = LiveStats()
    stats.start_turn(0.0)
    for now, event in enumerate(EVENTS):
        stats.on_event(event, float(now))

    shown = stats.snapshot(9.0)
    assert (shown.acceptance, shown.session_acceptance_rate, shown.tokens_per_second) == (None, None, 3.0)


def test_an_answer_in_a_format_says_that_it_was_a_loop_and_not_that_it_was_long():
    request = Request("q", answer_format=AnswerFormat.parse("regex", "a*"))

    looped, long = (_end(LastOutcome(each), request) for each in (END, Finished("length", TOTALS)))

    assert isinstance(looped, Failed) and isinstance(long, Failed)
    assert looped.message == f"{EXPLANATION} (the answer does not match the regex)"
    assert "raise --max-tokens" in long.message


class LastOutcome:
    """What `_end` asks of a conversation."""

    def __init__(self, last_outcome: Finished) -> None:
        self.last_outcome = last_outcome
