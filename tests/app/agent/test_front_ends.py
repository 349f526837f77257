"""The agent through the line mode and `specchat ask`, over the fake host: the script stands in the question."""

from __future__ import annotations

import json
import re
import sys

import pytest

from specchat.app.agent import project_agent
from specchat.app.chat_state import ChatState
from specchat.cli.main import run
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from specchat.repl import terminal_ui as terminal
from tests.app.agent.scripted import REPOSITORY
from tests.front import Bytes, type_line
from tests.host.conftest import world as runtime_folder


def script(*lines: str) -> str:
    return "\n".join(["agent", *lines])


def made(name: str, **arguments) -> str:
    return f"call {name} {json.dumps(arguments)}"


WRITE = made("write", path="shop/new.py", content="A = 1\n")
EDIT = made("edit", path="shop/prices.py", instruction="fence TAX VAT")


@pytest.fixture(scope="module")
def shared_host():
    """One host for all tests here; each has a project of its own."""
    with pytest.MonkeyPatch.context() as patch:
        yield from runtime_folder(patch)


@pytest.fixture
def world(shared_host, project, monkeypatch):
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(shared_host))
    (project / "AGENTS.md").unlink()
    return project


@pytest.fixture
def chat(world):
    with Conversation(SessionRequest(settings=read_settings())) as conversation:
        yield ChatState(conversation)


class Keyboard:
    """Types these answers."""

    def __init__(self, monkeypatch, *answers: str) -> None:
        self.answers, self.questions = list(answers), []
        monkeypatch.setattr(terminal, "prompt_user", self.type)
        for name in ("stdin", "stderr"):
            monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True)

    def type(self, question: str) -> str:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else ""


def asked(world, monkeypatch, capsys, *arguments: str):
    monkeypatch.setattr(sys, "stdin", Bytes())
    code = run(["ask", *arguments])
    return code, *capsys.readouterr()


def test_the_line_mode_uses_no_tools_until_it_is_told_to(chat, capsys):
    type_line(chat, "count 2")

    assert "off" == chat.conversation.settings.values["agent.mode"]
    assert "" == chat.conversation.settings.values["prompt.system"]


def test_the_line_mode_asks_shows_the_diff_and_writes(chat, world, monkeypatch, capsys):
    keyboard = Keyboard(monkeypatch, "y\n")
    type_line(chat, "/agent on")

    type_line(chat, script(made("read", path="shop/prices.py"), WRITE, "all done"))

    out, err = capsys.readouterr()
    assert "A = 1\n" == (world / "shop/new.py").read_text()
    assert "all done\n" == out
    assert "* read shop/prices.py: 5 lines" in err
    assert "+A = 1" in err
    assert "* write shop/new.py: shop/new.py: created (edit " in err
    assert "always allow write" in keyboard.questions[0]


def test_an_edit_by_instruction_is_made_by_the_engine_and_undone(chat, world, monkeypatch, capsys):
    Keyboard(monkeypatch, "y\n")
    type_line(chat, "/agent on")
    instruction = made("edit", path="shop/prices.py", instruction="fence TAX VAT")

    type_line(chat, script(instruction, "all done"))

    assert REPOSITORY["shop/prices.py"].replace("TAX", "VAT") == (world / "shop/prices.py").read_text()
    type_line(chat, "/undo")
    assert REPOSITORY["shop/prices.py"] == (world / "shop/prices.py").read_text()


@pytest.mark.parametrize("key", ["n\n", "s\n", "", "?\n"])
def test_the_line_mode_writes_nothing_that_is_declined(chat, world, monkeypatch, capsys, key):
    Keyboard(monkeypatch, key)
    type_line(chat, "/agent on")

    type_line(chat, script(WRITE, "all right"))

    assert not (world / "shop/new.py").exists()


def test_a_diff_cannot_send_control_characters_to_the_terminal(chat, world, monkeypatch):
    Keyboard(monkeypatch, "n\n")
    err = Bytes(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", err)
    from specchat.terminal import guarded_terminal

    with guarded_terminal():
        type_line(chat, "/agent on")
        type_line(chat, script(made("write", path="a.txt", content="\x1b]0;title\x07\n"), "so"))

    assert b"\x1b]0" not in err.content()
    assert "␛]0;title␇".encode() in err.content()


def test_plan_mode_only_reads(chat, world, monkeypatch, capsys):
    type_line(chat, "/agent plan")

    type_line(chat, script(WRITE, "a plan"))

    out, err = capsys.readouterr()
    assert "a plan\n" == out
    assert "no such tool" in err
    assert "You only read now" in chat.conversation.settings.values["prompt.system"]


def test_the_system_prompt_of_the_user_is_kept(chat, monkeypatch, capsys):
    for line in ("/system Be brief.", "/agent on", "count 1", "count 1"):
        type_line(chat, line)
    system = chat.conversation.settings.values["prompt.system"]
    type_line(chat, "/agent off")
    type_line(chat, "count 1")

    assert system.startswith("Be brief.\n\n# Tools\n")
    assert 1 == system.count("# Tools")
    assert "Be brief." == chat.conversation.settings.values["prompt.system"]


@pytest.mark.parametrize(("key", "is_read"), [("y\n", True), ("n\n", False)])
def test_the_instructions_of_a_project_are_read_once_accepted(chat, world, monkeypatch, capsys, key, is_read):
    (world / "AGENTS.md").write_text("Use tabs.\n")
    keyboard = Keyboard(monkeypatch, key)
    type_line(chat, "/agent on")
    for another in (chat, ChatState(chat.conversation)):
        type_line(another, "count 1")

    assert 1 == len(keyboard.questions)
    assert is_read == ("Use tabs." in chat.conversation.settings.values["prompt.system"])
    said = "AGENTS.md is read: 10 characters" if is_read else "AGENTS.md is not read"
    assert [2, 1] == [capsys.readouterr().err.count(said), len(keyboard.questions)]


@pytest.mark.parametrize("is_small", [True, False])
def test_a_small_model_is_offered_the_files_of_the_project_as_choices(chat, monkeypatch, is_small):
    monkeypatch.setattr(project_agent, "is_small", lambda models: is_small)
    type_line(chat, "/agent on")
    type_line(chat, "count 1")

    [loop] = chat.agent._loops.values()
    assert is_small == ("shop/cart.py" in loop.existing_files())


def token_count(summary: str) -> int:
    [count] = re.findall(r"^(\d+) tokens? ·", summary, re.MULTILINE)
    return int(count)


def test_ask_writes_nothing_without_a_rule_and_tells_the_model(world, monkeypatch, capsys):
    code, out, err = asked(world, monkeypatch, capsys, "--agent", script(WRITE, "all right"))

    assert (0, "all right\n") == (code, out)
    assert "needs the consent of the user" in err
    alone = asked(world, monkeypatch, capsys, "all right")[2]
    assert token_count(err) > token_count(alone)  # the call counts, too
    assert not (world / "shop/new.py").exists()


@pytest.mark.parametrize("allow", ["write", "write:shop/*"])
def test_ask_does_what_an_option_allows(world, monkeypatch, capsys, allow):
    code, out, _err = asked(world, monkeypatch, capsys, "--agent", "--allow", allow, script(WRITE, "all right"))

    assert (0, "all right\n") == (code, out)
    assert (world / "shop/new.py").exists()


def test_ask_ends_with_an_error_when_a_limit_ended_the_work(world, monkeypatch, capsys):
    read = made("read", path="README.md")

    code, _out, err = asked(world, monkeypatch, capsys, "--plan", script(read, read, read))

    assert 1 == code
    assert "ended early: the model made the same call 3 times" in err


def test_ask_ends_with_an_error_when_an_answer_ended_inside_a_call(world, monkeypatch, capsys):
    code, out, err = asked(world, monkeypatch, capsys, "--plan", script('repeat read {"path": "README.md'))

    assert (1, "") == (code, out)
    assert "ended early: the model repeated itself inside a call, which was not run" in err


def test_ask_reads_rules_of_a_project_only_if_it_is_trusted(world, monkeypatch, capsys):
    (world / ".specchat.toml").write_text('[agent]\nallow = ["write"]\n')
    asked(world, monkeypatch, capsys, "--agent", script(WRITE, "so"))
    assert not (world / "shop/new.py").exists()

    run(["config", "trust"])
    asked(world, monkeypatch, capsys, "--agent", script(WRITE, "so"))
    assert (world / "shop/new.py").exists()
