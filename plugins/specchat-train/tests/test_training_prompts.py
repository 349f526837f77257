"""The training questions and the held-out questions."""

import json
from contextlib import closing

import pytest

from specchat.chat.request import Request
from specchat.errors import InputError, UsageError
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat_train.training_prompts import TrainingPrompt, read_training_prompts, split_prompts
from tests.each_row import each_row


def questions(sources, each=1):
    return [
        TrainingPrompt(f"s{source}", Request(f"{source}.{place}?"))
        for source in range(sources)
        for place in range(each)
    ]


def test_questions_of_stored_conversations_have_their_previous_turns(tmp_path):
    path = tmp_path / "history.db"
    with closing(HistoryWriter(path)) as writer:
        parent = None
        for turn, text in (("a", "who?"), ("b", "why?")):
            writer.start_turn(Thread("t", "talk"), turn, parent, {"text": text, "files": []})
            writer.finish_turn(turn, StoredAnswer(f"{text} indeed"), "stop", {})
            parent = turn
        writer.add_thread(Thread("u", "fork", tip="b"))

    prompts = read_training_prompts("sessions", path)

    assert ["who?", "why?"] == [prompt.request.text for prompt in prompts]
    assert [(), ("who?",)] == [tuple(turn.user for turn in prompt.previous_turns) for prompt in prompts]
    assert 1 == len({prompt.source for prompt in prompts})


def test_pieces_of_text_and_code_become_questions_and_binary_files_do_not(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n" * 30)
    (tmp_path / "b.md").write_text("A text.\n")
    (tmp_path / "c.bin").write_bytes(b"\0\xff")

    prompts = read_training_prompts(str(tmp_path), tmp_path / "none")

    assert [("a.py", 24), ("a.py", 6), ("b.md", 1)] == [
        (prompt.source, prompt.request.files[0].text.count("\n")) for prompt in prompts
    ]


def test_every_row_of_prompts_is_its_own_source(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in ("one", "two")))

    prompts = read_training_prompts(str(rows), tmp_path / "none")

    assert ["one", "two"] == [prompt.request.text for prompt in prompts]
    assert 2 == len({prompt.source for prompt in prompts})


@each_row("data", ["sessions", "nowhere", "empty"])
def test_data_without_questions_is_an_error(data, tmp_path):
    (tmp_path / "empty").mkdir()

    with pytest.raises(InputError):
        read_training_prompts(data if data == "sessions" else str(tmp_path / data), tmp_path / "none")


def test_no_source_is_in_both_parts_and_held_out_sources_stay_when_data_is_added():
    few, more = split_prompts(questions(40, each=2), 10, 1000), split_prompts(questions(60, each=2), 1000, 1000)

    for split in (few, more):
        assert not {each.source for each in split.training} & {each.source for each in split.held_out}
    assert {each.source for each in few.held_out} & {f"s{index}" for index in range(40)} <= (
        {each.source for each in more.held_out}
    )


def test_the_number_of_questions_is_limited():
    split = split_prompts(questions(400), 20, 100)

    assert (80, 20) == (len(split.training), len(split.held_out))


@each_row("prompts", [questions(8), questions(1, each=100), []])
def test_too_few_questions_are_an_error(prompts):
    with pytest.raises(UsageError, match="too few questions"):
        split_prompts(prompts, 50, 400)
