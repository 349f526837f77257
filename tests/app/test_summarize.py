"""Files that are too long to attach: `/summarize` and questions about all of a file read them in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.command_registry import SUMMARY_QUESTION
from specchat.app.part_reader import PART_PROMPT
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from tests.front import type_line

LINE = "All work and no play makes Jack a dull boy.\n"


@pytest.fixture
def chat(runtime, tmp_path, monkeypatch) -> ChatState:
    """A conversation with a turn, and a context window of 512 tokens: a part has 768 characters."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a book.txt").write_text(LINE * 45)
    (tmp_path / "short.txt").write_text(LINE)
    chat = ChatState(Conversation(SessionRequest(settings=read_settings("narrow"))))
    type_line(chat, "write first")
    return chat


@pytest.fixture
def sent(monkeypatch):
    """The requests to the engine: text, files, and the limit of the answer."""
    requests = list[tuple[str, list[str], int | None]]()
    asked = Conversation.ask

    def ask(conversation, request, cancelled=None):
        requests.append((request.text, [file.name for file in request.files], request.max_tokens))
        return asked(conversation, replace(request, text=f"write note{len(requests)}"), cancelled)

    monkeypatch.setattr(Conversation, "ask", ask)
    return requests


@pytest.mark.parametrize(
    "line", ['/summarize "a book.txt" Summarize it for Jack', 'Summarize @"a book.txt" for an elephant']
)
def test_a_long_file_is_read_in_parts_and_the_question_is_answered_from_the_notes(chat, sent, capsys, line):
    original = chat.conversation.session_id
    type_line(chat, line)

    assert [text.partition(":")[0] for text, _, _ in sent[:-1]] == [
        f"Part {number} of 3 of a book.txt" for number in (1, 2, 3)
    ]
    question = sent[-1][0]
    assert all(question in text for text, _, _ in sent)
    assert [limit for _, _, limit in sent] == [64, 64, 64, None]
    assert [files for _, files, _ in sent] == [
        *[[f"a book.txt part {number}"] for number in (1, 2, 3)],
        ["notes about all of a book.txt"],
    ]
    last = chat.conversation.turns()[-1]
    assert [file["text"] for file in last.request["files"]] == ["note1\n\nnote2\n\nnote3\n"]
    assert (chat.conversation.session_id, len(chat.conversation.turns())) == (original, 2)
    told = capsys.readouterr().err
    assert "read in parts and summarized: a book.txt (about 660 tokens) in 3 parts" in told
    assert "reading a book.txt, part 2 of 3" in told
    assert "attached: notes about all of a book.txt (about 7 tokens), which does not fit itself" in told


def test_nothing_of_the_reading_stays_in_the_list_of_conversations_or_among_the_deleted_ones(chat, sent):
    type_line(chat, '/summarize "a book.txt"')

    for filters in ({}, {"is_deleted": True}):
        rows = chat.conversation.call("list_sessions", filters)["sessions"]
        assert len(rows) == (0 if filters else 1)


def test_a_private_conversation_reads_long_files_as_well(runtime, chat, sent):
    private = ChatState(Conversation(SessionRequest(is_stored=False, settings=read_settings("narrow"))))
    type_line(private, '/summarize "a book.txt"')

    assert ["notes about all of a book.txt"] == sent[-1][1]


def test_a_file_that_fits_is_attached_whole(chat, sent, capsys):
    type_line(chat, "/summarize @short.txt")

    assert sent == [(SUMMARY_QUESTION, ["short.txt"], None)]
    assert "attached: short.txt (about 15 tokens)" in capsys.readouterr().err


@pytest.mark.parametrize("question", ["Who is Jack? Look at", "Which dull boy is in"])
def test_a_question_about_a_passage_attaches_passages_and_names_the_other_way(chat, sent, capsys, question):
    type_line(chat, f'{question} @"a book.txt"')

    assert all("a book.txt lines" in name for _, files, _ in sent for name in files)
    assert "ask for a summary to have all of a named file read in parts" in capsys.readouterr().err


def test_a_question_without_a_word_of_the_file_reads_all_of_it(chat, sent):
    type_line(chat, 'Elephants in @"a book.txt"?')

    assert ["notes about all of a book.txt"] == sent[-1][1]


def test_a_repeated_question_does_not_read_the_file_again(chat, sent):
    for _ in range(2):
        type_line(chat, '/summarize "a book.txt"')

    assert [len(sent), sent[-1][1]] == [5, ["notes about all of a book.txt"]]


def test_notes_that_do_not_fit_are_summarized_again(chat, monkeypatch):
    texts, asked = list[str](), Conversation.ask

    def ask(conversation, request, cancelled=None):
        texts.append(request.text.partition(":")[0])
        note = "n" * 350 if request.text.startswith("Part") and "notes about" not in request.text else "short"
        return asked(conversation, replace(request, text=f"write {note}"), cancelled)

    monkeypatch.setattr(Conversation, "ask", ask)
    type_line(chat, '/summarize "a book.txt"')

    assert texts[3:] == [
        "Part 1 of 2 of the notes about a book.txt",
        "Part 2 of 2 of the notes about a book.txt",
        SUMMARY_QUESTION,
    ]


def test_a_part_with_more_tokens_than_estimated_is_halved_with_those_behind_it(chat, monkeypatch):
    texts, asked = list[str](), Conversation.ask

    def ask(conversation, request, cancelled=None):
        texts.append(request.text.partition(":")[0])
        text = "fail" if texts[-1] == "Part 3 of 3 of a book.txt" else "write note"  # "fail" is a ContextError
        return asked(conversation, replace(request, text=text), cancelled)

    monkeypatch.setattr(Conversation, "ask", ask)
    type_line(chat, '/summarize "a book.txt"')

    assert texts[2:] == ["Part 3 of 3 of a book.txt", "Part 3 of 4 of a book.txt", "Part 4 of 4 of a book.txt",
                         SUMMARY_QUESTION]  # fmt: skip


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_part_that_is_stopped_or_fails_sends_no_question_and_keeps_the_conversation(chat, monkeypatch, capsys, end):
    original, asked = chat.conversation.session_id, Conversation.ask

    def stop_second(conversation, request, cancelled=None):
        if "Part 2" in request.text and end == "failed":
            request = replace(request, text="fail", files=())
        elif "Part 2" in request.text:
            request = replace(request, text="slowly 500", files=())  # the stop comes before its end
            cancelled.set()
        return asked(conversation, request, cancelled)

    monkeypatch.setattr(Conversation, "ask", stop_second)
    type_line(chat, '/summarize "a book.txt"')

    told = capsys.readouterr().err
    assert "reading a book.txt, part 2 of 3" in told
    assert "the question is not sent" in told
    assert (chat.conversation.session_id, len(chat.conversation.turns())) == (original, 1)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("", "/summarize needs a file"),
        ("gone.txt", "gone.txt: there is no such file or folder"),
        (".", "/summarize reads one file"),
    ],
)
def test_what_cannot_be_read_is_an_error(chat, capsys, argument, said):
    type_line(chat, f"/summarize {argument}")

    assert said in capsys.readouterr().err
    assert len(chat.conversation.turns()) == 1


def test_the_prompt_of_a_part_names_its_place_and_the_request():
    shown = PART_PROMPT.format(number=2, count=3, name="a.txt", question="Why?")

    assert shown.startswith("Part 2 of 3 of a.txt:")
    assert shown.endswith("Why?")
