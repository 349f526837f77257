"""What a head learns from, and what it is never shown before its trial."""

import json
from contextlib import closing

import pytest

from specchat.chat.history import StoredAnswer, Thread
from specchat.chat.request import Request
from specchat.errors import InputError, UsageError
from specchat.host.history_writer import HistoryWriter
from specchat.train.training_prompts import TrainingPrompt, read_training_prompts, split_prompts


def questions(sources, each=1):
    return [
        TrainingPrompt(f"s{source}", Request(f"{source}.{place}?"))
        for source in range(sources)
        for place in range(each)
    ]


def test_kept_conversations_are_asked_again_with_what_was_said_before(tmp_path):
    path = tmp_path / "history.db"
    with closing(HistoryWriter(path)) as writer:
        parent = None
        for turn, text in (("a", "who?"), ("b", "why?")):
            writer.start_turn(Thread("t", "talk"), turn, parent, {"text": text, "files": []})
            writer.finish_turn(turn, StoredAnswer(f"{text} indeed"), "stop", {})
            parent = turn
        writer.add_thread(Thread("u", "fork", tip="b"))

    asked = read_training_prompts("sessions", path)

    assert ["who?", "why?"] == [question.request.text for question in asked]
    assert [(), ("who?",)] == [tuple(turn.user for turn in question.previous_turns) for question in asked]
    assert 1 == len({question.source for question in asked})


def test_pieces_of_text_and_code_are_asked_about_and_others_are_left_alone(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n" * 30)
    (tmp_path / "b.md").write_text("A text.\n")
    (tmp_path / "c.bin").write_bytes(b"\0\xff")

    asked = read_training_prompts(str(tmp_path), tmp_path / "none")

    assert [("a.py", 24), ("a.py", 6), ("b.md", 1)] == [
        (question.source, question.request.files[0].text.count("\n")) for question in asked
    ]


def test_every_row_of_prompts_is_a_source_of_its_own(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in ("one", "two")))

    asked = read_training_prompts(str(rows), tmp_path / "none")

    assert ["one", "two"] == [question.request.text for question in asked]
    assert 2 == len({question.source for question in asked})


@pytest.mark.parametrize("data", ["sessions", "nowhere", "empty"])
def test_data_that_asks_nothing_is_told(data, tmp_path):
    (tmp_path / "empty").mkdir()

    with pytest.raises(InputError):
        read_training_prompts(data if data == "sessions" else str(tmp_path / data), tmp_path / "none")


def test_no_source_is_on_both_sides_and_what_is_held_out_stays_so_when_more_is_asked():
    few, more = split_prompts(questions(40, each=2), 10, 1000), split_prompts(questions(60, each=2), 1000, 1000)

    for parted in (few, more):
        assert not {each.source for each in parted.training} & {each.source for each in parted.held_out}
    assert {each.source for each in few.held_out} & {f"s{place}" for place in range(40)} <= (
        {each.source for each in more.held_out}
    )


def test_no_more_is_asked_than_is_wanted():
    parted = split_prompts(questions(400), 20, 100)

    assert (80, 20) == (len(parted.training), len(parted.held_out))


@pytest.mark.parametrize("asked", [questions(8), questions(1, each=100), []], ids=["few", "one source", "none"])
def test_too_little_data_is_told(asked):
    with pytest.raises(UsageError, match="too little to learn from"):
        split_prompts(asked, 50, 400)
