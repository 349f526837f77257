"""Files and folders in the front ends: for `specchat ask`, and after an @ in a chat."""

import pytest

from specchat.app.command_registry import ChatState, run_line
from specchat.app.question import Question
from specchat.chat.events import Notice
from specchat.cli.main import run
from specchat.errors import InputError
from specchat.host.client import Conversation
from tests.each_row import each_row
from tests.front import events_of, request_of, type_line
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.processes import modules_after
from tests.scripted_session import ScriptedSession, run_with, scripted_answer


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that exceeds the context window of a profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("".join(f"def other_{n}(x):\n    return x\n\n\n" for n in range(500)))
    (tmp_path / "src" / "gate.py").write_text("def open_gate():\n    return 'iron'\n")
    return tmp_path


@pytest.fixture
def talk(folder, runtime):  # noqa: F811 (the fixture above)
    return ChatState(Conversation())


def asked(*arguments):
    session = ScriptedSession([scripted_answer(["iron"])])
    code = run_with(["ask", *arguments], lambda _profile: session)
    return code, session.requests[-1] if session.requests else None


def test_a_folder_is_attached_and_its_sources_follow_the_answer(folder, capsys):
    code, request = asked("What is the gate made of?", "-f", "src/")

    assert 0 == code
    assert ["src/gate.py lines 1-2"] == [file.name for file in request.files]
    printed = capsys.readouterr()
    assert "iron\n" == printed.out
    first, *_, last = printed.err.splitlines()
    assert first.startswith("attached: 1 passage of 1 file (about 12 tokens), out of 2 files; the rest")
    assert "sources: src/gate.py:1-2" == last


def test_a_glob_is_attached_to_a_question_from_stdin(folder, monkeypatch):
    monkeypatch.setattr("specchat.cli.ask.read_stdin", lambda: "gate?")

    _, request = asked("-", "-f", "**/g*.py")

    assert ("gate?", ["src/gate.py"]) == (request.text, [file.name for file in request.files])


@each_row("name", ["*.rs", "gone", "@repo"])
def test_a_name_without_files_sends_no_request(folder, capsys, name):
    assert (2, None) == asked("why?", "-f", name)
    assert 1 == len(capsys.readouterr().err.splitlines())


def test_mentioned_files_are_attached(talk):
    asked, notice, *_, answered = events_of(talk, Question("what is the gate in @src/ made of?"))

    assert ["src/gate.py lines 1-2"] == [file.name for file in asked.request.files]
    assert "out of 2 files" in notice.text
    assert "sources: src/gate.py:1-2" == answered.notices[0]


def test_sources_belong_to_one_question(talk):
    request_of(talk, "what is the gate in @src/ made of?")
    asked, second, *_, answered = events_of(talk, Question("and mail@example.org?"))

    assert () == asked.request.files
    assert not isinstance(second, Notice)
    assert not any("sources" in line for line in answered.notices)


def test_a_folder_is_attached_to_the_next_question(talk):
    run_line(talk, "/file src/")
    with pytest.raises(InputError):
        run_line(talk, "/file gone/")

    assert 1 == len(request_of(talk, "which gate?").files)
    assert () == request_of(talk, "which gate?").files


def test_the_repl_prints_the_attachments_and_their_sources(talk, capsys):
    type_line(talk, "which gate is in @src/?")

    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("attached: 1 passage of 1 file")
    assert "sources: src/gate.py:1-2" == told[-1]


def test_a_mention_of_a_missing_file_sends_no_request(talk, capsys):
    type_line(talk, 'what is in @"src/no gate.py"?')

    told = capsys.readouterr()
    assert told.err.startswith('specchat: @"src/no gate.py": there is no such file or folder')
    assert (told.out, talk.conversation.turns()) == ("", [])


def test_a_file_with_spaces_is_attached_by_every_front_end(talk, folder):
    (folder / "the gate.py").write_text("GATE = 'iron'\n")

    assert [file.name for file in request_of(talk, 'what is in @"the gate.py"?').files] == ["the gate.py"]
    run_line(talk, '/file "the gate.py"')
    assert [file.name for file in request_of(talk, "what?").files] == ["the gate.py"]
    _, request = asked("What is the gate made of?", "-f", "the gate.py")
    assert [file.name for file in request.files] == ["the gate.py"]


@pytest.mark.full
def test_retrieval_needs_no_torch(folder):
    code = "from specchat.context.retrieve import *; gather_context(['src'], 'gate', ContextBudget.of_window(99))"

    assert not {"torch", "transformers", "textual"} & modules_after(code)
    assert not {"bm25s", "numpy"} & modules_after("import specchat.context.retrieve")


def test_a_long_text_in_a_pipe_is_read_in_parts_and_only_the_answer_is_on_stdout(folder, runtime, monkeypatch, capsys):  # noqa: F811
    """The profile "narrow" has a window of 512 tokens."""
    monkeypatch.setattr("specchat.cli.ask.read_stdin", lambda: "a long day\n" * 150)
    monkeypatch.setattr("specchat.cli.ask._is_piped", lambda: True)
    (folder / "narrow.toml").write_text("[limits]\ncontext = 512\nanswer = 64\n")

    assert 0 == run(["ask", "-P", "narrow.toml", "say", "it"])

    printed = capsys.readouterr()
    assert 1 == len(printed.out.splitlines())
    assert "read in parts and summarized: stdin (about 550 tokens) in 3 parts" in printed.err
    assert "attached: notes about all of stdin" in printed.err
