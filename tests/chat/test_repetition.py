"""An answer that repeats itself: planted loops are noticed, legitimate repetition is not, and no drafter matters."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event as Flag

import pytest

from specchat.chat import repetition
from specchat.chat.events import REPETITION, Event, Finished, StepDone, TextDelta
from specchat.chat.repetition import EXPLANATION, MIN_RUN_TOKENS, Repetition, RepetitionDetector
from specchat.chat.request import AnswerFormat, Attachment, Request
from specchat.chat.running_answer import RunningAnswer
from specchat.chat.transcript import Question
from specchat.errors import ProfileError
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from specchat.text.tokenizer import Tokenizer
from tests.each_row import each_row
from tests.tiny import speaking

ROOT = Path(__file__).parents[2]
INTRO = list(range(1000, 1100))
TABLE = "| step | value |\n|---|---|\n" + "".join(f"| {row} | {row * row} |\n" for row in range(200))
NUMBERS = ", ".join(str(number) for number in range(600))
ASSIGNMENTS = "".join(f"    self.field_{number} = fields[{number}].strip().lower()\n" for number in range(80))
ROWS = "\n".join(f'{{"id": {number}, "name": "", "active": true, "tags": []}},' for number in range(60))
EMPTY_TABLE = "| name | phone | mail |\n|---|---|---|\n" + "|  |  |  |\n" * 10
ZEROS = "TABLE = [" + "0, " * 30 + "]\n"
LEGITIMATE = [TABLE, NUMBERS, ASSIGNMENTS, ROWS, EMPTY_TABLE, ZEROS]


def first_repetition(tokens: list[int], repeats: int = 3, **options) -> tuple[int, Repetition] | None:
    """The number of tokens read, and what was found."""
    detector = RepetitionDetector(repeats, **options)
    for count, token in enumerate(tokens, 1):
        if found := detector.add(token):
            return count, found
    return None


def words(text: str) -> list[int]:
    """Words, single digits and signs as tokens, more easily repetitive than those of a real tokenizer."""
    known: dict[str, int] = {}
    return [known.setdefault(word, len(known)) for word in re.findall(r"[^\W\d]+|\d|\s+|.", text)]


@each_row("period", [32, 33, 50, 100, 301])
def test_a_long_block_is_noticed_when_its_third_repeat_is_complete(period):
    block = list(range(period))

    assert (100 + 3 * period, Repetition(period, 3, 100 + period)) == first_repetition(INTRO + block * 6)
    assert first_repetition(INTRO + block * 3 + [7777], repeats=4) is None


@each_row("period", [1, 2, 3, 7, 16, 31])
def test_a_short_block_is_noticed_after_96_tokens(period):
    block = list(range(period))
    found = first_repetition(INTRO + block * 400)

    assert found is not None
    assert (MIN_RUN_TOKENS + 100, Repetition(period, MIN_RUN_TOKENS // period, 100 + period)) == found


def test_what_remains_ends_with_a_line_or_a_sentence_of_the_block():
    line, sentence = 7, 8
    block = [1, 2, sentence, 3, line, *range(10, 40)]
    detector = RepetitionDetector(3, end_quality=lambda token: {line: 2, sentence: 1}.get(token, 0))

    [found] = filter(None, map(detector.add, INTRO + block * 3))

    assert (INTRO + block * 3)[found.kept_tokens - 1] == line
    assert len(INTRO) + len(block) < found.kept_tokens < len(INTRO) + 2 * len(block)


def test_a_run_is_known_before_it_is_a_repetition():
    detector, block = RepetitionDetector(3), list(range(40))
    states = list[bool]()
    for token in INTRO + block * 2 + block[:20] + INTRO:
        detector.add(token)
        states.append(detector.is_in_run)

    assert states.index(True) == len(INTRO) + 2 * len(block) - 1
    assert states.count(True) == 21


def test_the_second_block_of_a_run_is_undecided_until_it_ends_or_is_a_copy():
    block, copied = list(range(40)), RepetitionDetector(3, is_copied=lambda _tokens: True)
    answers = {
        "a run that ends": (RepetitionDetector(3), 21),
        "a run that may go on": (RepetitionDetector(0), 0),
        "a copy": (copied, 40),  # it is compared with the texts of the user after three blocks
    }
    for name, (detector, most) in answers.items():
        undecided = list[int]()
        for token in INTRO + block * 2 + block[: 40 if detector is copied else 20] + INTRO:
            detector.add(token)
            undecided.append(detector.undecided_tokens)

        assert (most, 0) == (max(undecided), undecided[-1]), name
        assert detector.undecided_tokens == 0


def test_a_loop_is_known_also_where_none_ends_an_answer():
    detector = RepetitionDetector(0)

    for token in list(range(40)) * 3:
        assert detector.add(token) is None
    assert detector.is_in_run


def test_a_block_that_contains_smaller_loops_is_noticed_too():
    block = [1, 2] * 20 + list(range(10, 50)) + [1, 2] * 20

    found = first_repetition(INTRO + block * 5)

    assert found is not None
    assert 3 * len(block) <= found[0] - 100 <= 4 * len(block)


def test_one_other_token_in_a_block_ends_the_run():
    block = list(range(40))
    changed = [*block[:20], 5000, *block[21:]]

    assert first_repetition(INTRO + (block + block + changed) * 2 + block) is None


@each_row("text", LEGITIMATE)
def test_legitimate_repetition_is_none(text):
    tokenizer = Tokenizer(ROOT / "specchat/embedded/target")

    assert first_repetition(words(text)) is None
    assert first_repetition(tokenizer.encode(text)) is None


@pytest.mark.full
def test_no_file_of_this_project_is_a_repetition():
    tokenizer = Tokenizer(ROOT / "specchat/embedded/target")
    files = [*sorted((ROOT / "specchat").rglob("*.py"))[::12], *sorted((ROOT / "docs").glob("*.md"))[::4]]

    assert [] == [file for file in files if first_repetition(tokenizer.encode(file.read_text("utf-8")))]


def test_a_copy_of_a_given_run_is_none_until_it_is_longer_than_the_given_one():
    block, given = list(range(40)), 5
    run = block * given
    text = " ".join(map(str, run))

    def is_copied(tokens):
        return " ".join(map(str, tokens)) in text

    assert first_repetition(INTRO + run + INTRO, is_copied=is_copied) is None
    found = first_repetition(INTRO + block * 20, is_copied=is_copied)
    assert found is not None
    assert 40 * given + 100 < found[0] <= 40 * (given + 1) + 100 + repetition.COPY_CHECK_INTERVAL


def test_zero_turns_it_off_and_one_is_refused():
    assert first_repetition([1] * 5000, repeats=0) is None
    with pytest.raises(ProfileError, match=r"limits\.repeats"):
        Profile().override({"limits.repeats": 1})


@pytest.fixture(scope="module")
def engine():
    return load_engine(Profile().override({"models.target": str(speaking()), "models.draft": ""}))


@pytest.fixture
def eager(monkeypatch):
    """Any two equal blocks in a row are a repetition: a random network soon writes them."""
    monkeypatch.setattr(repetition, "WINDOW_TOKENS", 1)
    monkeypatch.setattr(repetition, "MIN_RUN_TOKENS", 2)


def answered(engine: Engine, request: Request, repeats: int = 2) -> tuple[str, Finished, tuple[int, ...]]:
    with engine.create_session(profile=engine.models.profile.override({"limits.repeats": repeats})) as session:
        events: list[Event] = list(session.ask(request))
        [turn], finished = session.turns, events[-1]
        assert isinstance(finished, Finished)
        assert finished.totals.completion_tokens == len(turn.answer_ids)
        assert session.generation.tokens == list(turn.token_ids)
        streamed = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert turn.answer == finished.without_repeats(streamed)
        return turn.answer, finished, turn.answer_ids


@pytest.mark.dear
@pytest.mark.parametrize("variant", ["lookup", "suffix", "auto"])
@pytest.mark.usefixtures("eager")
def test_an_answer_ends_at_the_same_token_with_every_drafter(engine, variant):
    for question in ("why", "hello there"):
        text, finished, ids = answered(engine, Request(question, variant="plain"))
        other_text, other_finished, other_ids = answered(engine, Request(question, variant=variant))

        assert (text, ids) == (other_text, other_ids)
        assert REPETITION == finished.finish_reason == other_finished.finish_reason
        assert 0 < finished.totals.repeated_tokens == other_finished.totals.repeated_tokens
        assert finished.repeated_characters == other_finished.repeated_characters
        assert EXPLANATION.endswith("; ask for less at once, or find a larger model: 'specchat setup'")
        assert EXPLANATION == finished.explanation == other_finished.explanation


@pytest.mark.usefixtures("eager")
def test_no_more_than_two_blocks_of_a_loop_are_streamed_with_every_drafter(engine):
    endless = AnswerFormat.parse("regex", "(ab c){40}")
    for variant in ("plain", "suffix", "lookup"):
        with engine.create_session(profile=engine.models.profile.override({"limits.repeats": 6})) as session:
            events = list(session.ask(Request("why", variant=variant, answer_format=endless, max_tokens=100)))
        streamed = "".join(event.text for event in events if isinstance(event, TextDelta))
        written = b"".join(
            token.token_bytes for event in events if isinstance(event, StepDone) for token in event.committed_tokens
        )
        assert isinstance(events[-1], Finished) and events[-1].finish_reason == REPETITION
        cut = len(written) - len(events[-1].without_repeats(streamed))
        assert written.startswith(streamed.encode())
        assert 0 <= events[-1].repeated_characters < cut / 4, variant


@pytest.mark.usefixtures("eager")
def test_without_the_check_the_answer_goes_on(engine):
    _text, finished, ids = answered(engine, Request("why", max_tokens=60), repeats=0)

    assert ("length", "", 60) == (finished.finish_reason, finished.explanation, len(ids))


def test_a_small_model_says_once_that_it_is_too_small_for_an_answer_that_is_cut_and_what_to_do(engine):
    profile = engine.models.profile.override({"limits.answer": 8, "limits.repeats": 0})
    long = AnswerFormat.parse("regex", "(again and ){40}")
    requests = [Request("hello", max_tokens=max_tokens, answer_format=long) for max_tokens in (4, None, None)]

    with engine.create_session(profile=profile) as session:
        ends = [list(session.ask(each))[-1] for each in requests]

    advice = "ask for less at once, or find a larger model: 'specchat setup'"
    sentence = f"a model of this size is too small to write so long an answer; {advice}"
    assert [("length", ""), ("length", sentence), ("length", "")] == [(e.finish_reason, e.explanation) for e in ends]


def test_the_texts_of_the_user_may_be_copied(engine):
    encode = engine.models.tokenizer.encode
    with engine.create_session() as session:
        list(session.ask(Request("rewrite", (Attachment("a.csv", "0;0\n" * 9),), max_tokens=1)))
        question = Question(Request("and <hr><hr>"), tuple(session.turns))
        is_copied = RunningAnswer(session.models, session, question, Flag())._repetition_detector().is_copied

        assert is_copied(encode("0;0\n" * 9))
        assert is_copied(encode("<hr><hr>"))
        assert not is_copied(encode("0;0\n" * 10))
