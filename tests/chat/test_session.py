"""Sessions: answers, stored turns, limits, cancellation, rewinding; and no drafter changes the text."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from threading import Event as Flag

import pytest

from specchat.chat.events import NO_OUTPUT_YET, Failed, Finished, PrefillProgress, Routed, StepDone, TextDelta
from specchat.chat.request import Attachment, Request
from specchat.chat.session import Session
from specchat.chat.step_records import Inspection
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from specchat.text.tokenizer import Tokenizer
from tests.cover import matrix
from tests.each_row import each_row
from tests.tiny import Chaos, speaking

SAMPLING = {
    "greedy": {},
    "T1": {"sampling.temperature": 1.0},
    "T0.7-p0.9": {"sampling.temperature": 0.7, "sampling.top_p": 0.9},
    "k20": {"sampling.temperature": 1.0, "sampling.top_k": 20},
    "min-p": {"sampling.temperature": 1.0, "sampling.min_p": 0.05},
    "penalty": {"sampling.repetition_penalty": 1.3},
}
VARIANTS = ["lookup", "draft", "auto", "chaos", "self"]
QUESTIONS = ["abc abc abc", "and again: abc abc"]


@lru_cache
def engine(sampling: str, context: int) -> Engine:
    profile = Profile().override(
        {
            "models.target": str(speaking()), "models.draft": str(speaking(layers=1, seed=2)),
            "limits.context": context, "limits.answer": 40, **SAMPLING[sampling],
        }
    )  # fmt: skip
    loaded = load_engine(profile)
    loaded.models.target.prefill_chunk = 16
    return loaded


def session(sampling: str = "greedy", context: int = 4096) -> Session:
    """A session with additional drafters that no profile can name."""
    opened = engine(sampling, context).create_session()
    chaos, perfect = Chaos(7), DraftModelDrafter(engine(sampling, context).models.target)
    perfect.name = "self"
    opened.drafters = {**opened.drafters, "chaos": chaos, "self": perfect}
    opened.generation.drafters = (*opened.generation.drafters, chaos, perfect)
    return opened


def pinned(session: Session, variant: str) -> None:
    """Use one drafter, also one that the router does not know."""
    session.drafters = {**session.drafters, "auto": session.drafters[variant]}


def said(session: Session, question: str, **how: object) -> str:
    events = list(session.ask(Request(question, **{"seed": 5, **how})))
    assert isinstance(events[-1], Finished), events[-1]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def conversation(session: Session, stop: tuple[str, ...]) -> list[str]:
    """Two turns, the second replaced by another question, and one more."""
    answers = [said(session, question, stop=stop) for question in QUESTIONS]
    session.rewind()
    answers += [said(session, "otherwise: abc", stop=stop), said(session, "more", stop=stop)]
    return answers


@lru_cache
def stop_string(sampling: str) -> str:
    """Two characters from the middle of the plain answer, which may belong to different tokens."""
    with session(sampling) as plain:
        pinned(plain, "plain")
        text = said(plain, QUESTIONS[0])
    return text[len(text) // 2 :][:2]


@lru_cache
def plainly(sampling: str, stop: tuple[str, ...]) -> list[str]:
    with session(sampling) as plain:
        pinned(plain, "plain")
        return conversation(plain, stop)


@pytest.mark.dear
@pytest.mark.parametrize(
    ("sampling", "variant", "stopping"),
    matrix(list(SAMPLING), VARIANTS, [False, True], seldom=("T0.7-p0.9", "k20", "min-p")),
)
def test_no_drafter_changes_the_text(sampling, variant, stopping):
    stop = (stop_string(sampling),) if stopping else ()
    with session(sampling) as speculative:
        pinned(speculative, variant)
        assert conversation(speculative, stop) == plainly(sampling, stop)


@each_row("ending", ["stop string", "limit", "cancel", "end token"])
def test_after_any_ending_the_next_turn_is_that_of_a_fresh_session(ending):
    with session() as talked, session() as fresh:
        pinned(talked, "self")
        if ending == "stop string":
            said(talked, QUESTIONS[0], stop=(stop_string("greedy"),))
        elif ending == "limit":
            said(talked, QUESTIONS[0], max_tokens=7)
        elif ending == "cancel":
            flag = Flag()
            for event in talked.ask(Request(QUESTIONS[0]), flag):
                if isinstance(event, StepDone):
                    flag.set()
        else:
            talked.models.tokenizer.stop_token_ids = frozenset(
                talked.models.tokenizer.encode(said(fresh, QUESTIONS[0])[5])
            )
            fresh.rewind()
            said(talked, QUESTIONS[0])
        fresh.turns = list(talked.turns)

        assert len(talked.generation.tokens) == len(talked.turns[-1].token_ids)
        assert talked.generation.cache.length <= len(talked.generation.tokens) - 1
        assert said(talked, QUESTIONS[1]) == said(fresh, QUESTIONS[1])


@pytest.fixture(autouse=True)
def end_tokens():
    tokenizer = engine("greedy", 4096).models.tokenizer
    stop = tokenizer.stop_token_ids
    yield
    tokenizer.stop_token_ids = stop


def test_a_turn_has_events_from_the_route_to_the_totals():
    with session() as talked:
        events = list(talked.ask(Request(QUESTIONS[0], seed=1)))

    kinds = [type(event) for event in events]
    assert kinds[0] is Routed
    assert kinds[-1] is Finished
    assert kinds.index(PrefillProgress) < kinds.index(TextDelta)
    totals = events[-1].totals
    steps = [event for event in events if isinstance(event, StepDone)]
    assert (
        totals.completion_tokens
        == sum(len(step.committed_tokens) for step in steps)
        == len(talked.turns[-1].answer_ids)
    )
    assert totals.steps == len(steps)
    assert totals.plain_decode_seconds > 0
    assert totals.ttft_seconds >= totals.prefill_seconds > 0
    accepted = [token.source for step in steps for token in step.committed_tokens if token.source != "target"]
    assert len(accepted) == sum(totals.accepted_by_drafter.values())


def test_a_cached_prompt_tells_its_length_before_the_text():
    with session() as talked:
        said(talked, QUESTIONS[0])
        total = len(talked.turns[0].prompt_ids)
        talked.rewind()
        told = [event for event in talked.ask(Request(QUESTIONS[0])) if isinstance(event, PrefillProgress)]

    assert [PrefillProgress(total, total, total - 1)] == told


def test_the_tokens_of_a_text_come_before_it():
    with session() as talked:
        text, committed = "", b""
        for event in talked.ask(Request(QUESTIONS[0], seed=1)):
            if isinstance(event, StepDone):
                committed += b"".join(token.token_bytes for token in event.committed_tokens)
            if isinstance(event, TextDelta):
                text += event.text
                assert committed.decode(errors="replace").startswith(text)

    assert text


def test_a_drafted_answer_is_compared_with_plain_passes_that_were_made_for_it():
    with session() as talked:
        pinned(talked, "self")
        forward, rows = talked.models.target.forward, list[int]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                talked.models.target, "forward", lambda tree, cache: rows.append(len(tree)) or forward(tree, cache)
            )
            *_, finished = talked.ask(Request(QUESTIONS[0], seed=1))

        assert 1 not in rows[: finished.totals.steps - 1]
        assert 1 in rows[finished.totals.steps :]
        assert finished.totals.speedup is not None or finished.totals.plain_decode_error > 0.6
        assert finished.totals.completion_tokens == len(talked.turns[-1].answer_ids)


@pytest.mark.full
def test_passes_that_only_measure_leave_the_conversation_as_it_is():
    with session() as talked, session() as plain:
        pinned(talked, "self")
        pinned(plain, "plain")

        assert conversation(talked, ()) == conversation(plain, ())


def test_plain_decoding_has_no_factor_and_is_its_own_baseline():
    with session() as talked:
        pinned(talked, "plain")
        *steps, finished = talked.ask(Request(QUESTIONS[0], seed=1))

    totals = finished.totals
    assert totals.speedup is None
    assert 0.9 * totals.decode_seconds <= totals.plain_decode_seconds <= totals.decode_seconds
    assert all(step.plain_seconds == step.verify_seconds for step in steps if isinstance(step, StepDone))


@each_row("limit, window", [(2**20, 32768), (300, 300)])
def test_a_turn_tells_the_window_of_the_model_or_of_the_profile_if_that_is_smaller(limit, window):
    with session(context=limit) as talked:
        routed = next(talked.ask(Request(QUESTIONS[0])))

    assert routed.context_window == window


def test_step_records_add_up_to_the_totals():
    with session() as talked:
        pinned(talked, "self")
        events = list(talked.ask(Request(QUESTIONS[0], seed=1)))
        steps = [event for event in events if isinstance(event, StepDone)]
        inspection, totals = Inspection(steps), events[-1].totals

        assert all(len(step.draft_tokens) == len(step.draft_token_bytes) == len(step.draft_sources) for step in steps)
        assert totals.draft_tokens == inspection.draft_count > 0
        assert sum(totals.accepted_by_drafter.values()) == inspection.accepted_count > 0
        spelled = b"".join(talked.models.tokenizer.token_bytes(token) for token in talked.turns[-1].answer_ids)
        assert spelled.decode("utf-8", "replace").startswith("".join(span.text for span in inspection.spans))


def test_tokens_after_a_stop_string_are_not_counted():
    with session() as talked:
        pinned(talked, "self")
        *_, finished = talked.ask(Request(QUESTIONS[0], stop=(stop_string("greedy"),), seed=5))

        assert finished.totals.completion_tokens == len(talked.turns[-1].answer_ids)
        assert sum(finished.totals.accepted_by_drafter.values()) < finished.totals.completion_tokens


def test_an_answer_that_is_begun_is_continued():
    with session() as whole, session() as begun:
        answer = said(whole, QUESTIONS[0])
        ids = list(whole.turns[0].answer_ids)
        known = whole.models.tokenizer.decode(ids[:3])

        continued = said(begun, QUESTIONS[0], answer_prefix=known)

        turn = begun.turns[0]
        assert answer.startswith(known)
        assert known == continued[: len(known)]
        assert continued == turn.answer
        assert len(continued) > len(known)
        assert len(begun.generation.tokens) == len(turn.token_ids)
        assert said(begun, QUESTIONS[1])
        assert turn.token_ids == begun.turns[1].prompt_ids[: len(turn.token_ids)]


def test_the_second_turn_prefills_only_new_tokens():
    with session() as talked:
        said(talked, QUESTIONS[0])
        known = len(talked.generation.tokens) - 1
        *_, finished = talked.ask(Request(QUESTIONS[1]))

    assert finished.totals.cached_tokens == known


def test_token_ids_are_stored_and_never_encoded_again():
    with session("T1") as talked:
        said(talked, QUESTIONS[0])
        first = talked.turns[0].token_ids
        said(talked, QUESTIONS[1])

    assert talked.turns[1].prompt_ids[: len(first)] == first


def test_a_removed_turn_leaves_no_trace():
    with session() as talked, session() as fresh:
        said(talked, QUESTIONS[0])
        said(talked, QUESTIONS[1])
        taken = talked.rewind(2)

        assert [turn.user for turn in taken] == QUESTIONS
        assert said(talked, QUESTIONS[1]) == said(fresh, QUESTIONS[1])


def test_without_a_seed_each_turn_draws_its_own():
    with session("T1") as talked:
        seeds = [next(iter(talked.ask(Request("abc")))).seed for _ in range(3)]

    assert len(set(seeds)) == 3


def test_a_seed_fixes_the_text():
    with session("T1") as one, session("T1") as other:
        assert said(one, "abc", seed=3) == said(other, "abc", seed=3)
        assert said(one, "abc", seed=3) != said(other, "abc", seed=4)


def test_a_prompt_that_does_not_fit_is_an_error():
    with session(context=64) as talked:
        *_, failed = talked.ask(Request("abc " * 40))

    assert isinstance(failed, Failed)
    assert failed.exit_code == 6
    assert "64" in failed.message
    assert not talked.turns


class CountingTokenizer(Tokenizer):
    """Counts the characters that it has encoded."""

    encoded_characters = 0

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        self.encoded_characters += len(text)
        return super().encode(text, parse_special)


def counting(opened: Session) -> CountingTokenizer:
    tokenizer = CountingTokenizer(speaking())
    opened.models = replace(opened.models, tokenizer=tokenizer)
    return tokenizer


def test_a_question_of_megabytes_is_refused_after_its_first_part():
    with session(context=64) as talked:
        tokenizer = counting(talked)
        *waiting, failed = talked.ask(Request("word " * 800_000))

    assert (failed.exit_code, set(waiting) - {NO_OUTPUT_YET}) == (6, set())
    assert "has 4000000 characters" in failed.message
    assert "the context window has 64;" in failed.message
    assert tokenizer.encoded_characters < 100_000


def test_other_sessions_run_while_a_long_question_is_tokenized():
    with session(context=32768) as talked:
        events = talked.ask(Request("word " * 10_000))

        assert next(events) == NO_OUTPUT_YET


def test_tokenizing_a_long_question_can_be_cancelled():
    cancelled = Flag()
    with session(context=32768) as talked:
        tokenizer = counting(talked)
        events = talked.ask(Request("word " * 6600), cancelled)
        next(event for event in events if event == NO_OUTPUT_YET)
        cancelled.set()
        [end] = events

    assert end.finish_reason == "cancelled"
    assert tokenizer.encoded_characters < 33_000


def test_an_answer_ends_with_the_context_window():
    with session(context=64) as talked:
        *_, finished = talked.ask(Request("abc", max_tokens=100))

        assert finished.finish_reason == "length"
        assert len(talked.generation.tokens) == 64


def test_a_question_can_be_a_string():
    with session() as talked:
        *_, finished = talked.ask("abc")

        assert isinstance(finished, Finished)
        assert talked.turns[0].user == "abc"


def test_an_empty_question_is_a_failed_event():
    with session() as talked:
        [failed] = talked.ask("  ")

    assert failed == Failed("the prompt is empty; give a question as an argument or on standard input", 2)


def test_an_unknown_variant_names_the_known_ones():
    with session() as talked:
        *_, failed = talked.ask(Request("abc", variant="eager"))

    assert "lookup" in failed.message


def test_attached_files_reach_the_prompt():
    with session() as talked:
        said(talked, "what is this?", files=(Attachment("a.py", "x = 1\n"),))

    assert "a.py" in talked.turns[0].rendered_prompt
    assert "x = 1\n" in talked.turns[0].rendered_prompt


def test_cancel_in_a_long_prefill_ends_within_a_chunk():
    with session(context=32768) as talked:
        talked.models.target.prefill_chunk = 128
        flag, events = Flag(), []
        for event in talked.ask(Request("abc " * 5200), flag):
            events.append(event)
            flag.set()  # at the first event

        assert len(talked.generation.tokens) > 20_000
        assert (
            talked.models.target.pool.bytes <= (32768 + SCRATCH_ROWS) * talked.models.target.pool.layout.bytes_per_row
        )
        assert sum(isinstance(event, PrefillProgress) for event in events) == 1
        assert isinstance(events[-1], Finished)
        assert events[-1].finish_reason == "cancelled"
        assert talked.generation.cache.length <= 128


def test_a_turn_is_stored_when_the_caller_stops_reading_events():
    with session() as talked:
        answer = talked.ask(Request(QUESTIONS[0]))
        heard = ""
        for event in answer:
            if isinstance(event, TextDelta):
                heard += event.text
            if len(heard) > 3:
                answer.close()
                break

        assert talked.turns[-1].answer.startswith(heard)
        assert not talked.turns[-1].is_finished
        assert said(talked, QUESTIONS[1])


def test_a_turn_without_memory_is_not_stored():
    with session() as talked:
        pool = talked.models.target.pool
        pool.budget_bytes = 10
        *_, failed = talked.ask(QUESTIONS[0])
        pool.budget_bytes = None

        assert isinstance(failed, Failed)
        assert failed.exit_code == 7
        assert not talked.turns
        assert said(talked, QUESTIONS[0])


def test_more_sessions_than_slots_have_correct_texts():
    opened = [session() for _ in range(4)]
    with session() as alone:
        expected = conversation(alone, ())
    answers: list[list[str]] = [[] for _ in opened]
    for turn in range(2):
        for each, heard in zip(opened, answers, strict=True):
            heard.append(said(each, QUESTIONS[turn]))

    assert answers == [expected[:2]] * 4
    for each in opened:
        each.close()
