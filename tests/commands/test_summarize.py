"""`/summarize`: a file that is too long to attach is read in parts."""

from __future__ import annotations

import pytest

from specchat.commands import summarize as summarizing
from specchat.commands.chat_state import ChatState
from specchat.commands.summarize import split_parts
from specchat.host.client import Conversation, SessionRequest
from specchat.repl.loop import run_input_line

LINE = "All work and no play makes Jack a dull boy.\n"


@pytest.fixture
def chat(runtime, tmp_path, monkeypatch) -> ChatState:
    """A conversation with a turn, and a context window of 512 tokens: a part has 768 characters."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a book.txt").write_text(LINE * 45)
    (tmp_path / "short.txt").write_text(LINE)
    chat = ChatState(Conversation(SessionRequest(profile="narrow")))
    run_input_line(chat, "write first")
    return chat


@pytest.fixture
def sent(monkeypatch):
    """The requests of a command: text, files, and the limit of the answer."""
    requests = list[tuple[str, list[str], int | None]]()
    ours = ChatState.make_bare_request

    def bare_request(chat, text, files=(), max_tokens=None):
        requests.append((text, [file.name for file in files], max_tokens))
        return ours(chat, f"write note{len(requests)}", files, max_tokens)

    monkeypatch.setattr(ChatState, "make_bare_request", bare_request)
    return requests


def test_a_long_file_is_read_in_parts_and_the_question_is_answered_from_the_notes(chat, sent, capsys):
    original = chat.conversation.session_id
    run_input_line(chat, '/summarize "a book.txt" Who is dull?')

    assert [text.partition(":")[0] for text, _, _ in sent] == [
        *[f"Part {number} of 3 of a book.txt" for number in (1, 2, 3)],
        "Who is dull?",
    ]
    assert all("Who is dull?" in text for text, _, _ in sent)
    assert [limit for _, _, limit in sent] == [64, 64, 64, None]
    assert [files for _, files, _ in sent] == [
        *[[f"a book.txt part {number}"] for number in (1, 2, 3)],
        ["notes about all 3 parts of a book.txt"],
    ]
    last = chat.conversation.turns()[-1]
    assert [file["text"] for file in last.request["files"]] == ["note1\n\nnote2\n\nnote3\n"]
    assert (chat.conversation.session_id, len(chat.conversation.turns())) == (original, 2)
    told = capsys.readouterr().err
    assert "a book.txt does not fit into the context window: it is read in 3 parts" in told
    assert "attached: notes about all 3 parts of a book.txt (about 7 tokens), instead of the file" in told


def test_the_copies_of_the_conversation_are_gone_afterwards(chat, sent):
    run_input_line(chat, '/summarize "a book.txt"')

    assert len(chat.conversation.call("list_sessions", {})["sessions"]) == 1


def test_a_file_that_fits_is_attached_whole(chat, sent):
    run_input_line(chat, "/summarize @short.txt")

    assert sent == [(summarizing.DEFAULT_QUESTION, ["short.txt"], None)]
    assert "it is attached whole" in chat.attachment_notice


def test_notes_that_do_not_fit_are_summarized_again(chat, sent, monkeypatch):
    monkeypatch.setattr(ChatState, "answer", property(lambda _chat: LINE * 8))
    run_input_line(chat, '/summarize "a book.txt"')

    texts = [text.partition(":")[0] for text, _, _ in sent]
    assert texts[3:5] == ["Part 1 of 2 of the notes about a book.txt", "Part 2 of 2 of the notes about a book.txt"]
    assert texts[-1] == summarizing.DEFAULT_QUESTION


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_part_that_is_stopped_or_fails_attaches_nothing_and_keeps_the_conversation(chat, monkeypatch, capsys, end):
    original, asked = chat.conversation.session_id, Conversation.ask

    def stop_second(conversation, request, cancelled=None):
        if "Part 2" in request.text and end == "failed":
            request = summarizing.replace(request, text="fail", files=())
        elif "Part 2" in request.text:
            request = summarizing.replace(request, text="slowly 500", files=())  # the stop comes before its end
            cancelled.set()
        return asked(conversation, request, cancelled)

    monkeypatch.setattr(Conversation, "ask", stop_second)
    run_input_line(chat, '/summarize "a book.txt"')

    assert "a book.txt is not summarized: stopped after 1 of 3 parts" in capsys.readouterr().err
    assert (chat.conversation.session_id, len(chat.conversation.turns())) == (original, 1)


@pytest.mark.parametrize(
    ("argument", "said"),
    [("", "/summarize needs a file"), ("gone.txt", "gone.txt: cannot be read"), (".", "/summarize reads one file")],
)
def test_what_cannot_be_read_is_an_error(chat, capsys, argument, said):
    run_input_line(chat, f"/summarize {argument}")

    assert said in capsys.readouterr().err
    assert len(chat.conversation.turns()) == 1


@pytest.mark.parametrize("text", ["", "a\n" * 50, "x" * 95, "long line " * 9 + "\nand\nshort\nones\n", "é\r\n" * 33])
def test_parts_are_the_text_and_fit(text):
    parts = split_parts(text, 30)

    assert "".join(parts) == text
    assert all(0 < len(part) <= 30 for part in parts)
