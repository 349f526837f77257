"""A terminal gets text with visible control characters, and no sequence that it would obey; a pipe gets every byte."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import specchat
from specchat.chat.request import Request
from specchat.edit.atomic_write import Replacement
from specchat.edit.undo_store import user_undo_store
from specchat.host.client import Conversation
from specchat.terminal import (
    CONTROL_CHARACTERS,
    GuardedStream,
    Styled,
    guarded_terminal,
    printable_with_tabs,
)
from tests.each_row import each_row
from tests.edit.scripted import answers, say
from tests.front import FRONT_ENDS, Bytes, Ran, command
from tests.host.conftest import runtime  # noqa: F401 - a fixture

PACKAGE = Path(specchat.__file__).parent
CLIPBOARD, TITLE, HIDDEN = "\x1b]52;c;cm0gLXJmIH4=\x07", "\x9d0;owned\x9c", "\x1b[8m\u202eevil\u202c\x7f"
HOSTILE = f"good {CLIPBOARD}{TITLE}{HIDDEN}\rbad"
OWN_SEQUENCES = re.compile(r"\x1b\[(?:[0-9;]*m|2?K)|\r(?=\x1b\[2?K)")


def obeyed(ran: Ran) -> list[str]:
    """The control characters that reached the terminal, but for colours and cleared lines of our own."""
    shown = OWN_SEQUENCES.sub("", ran.out.decode() + ran.err)
    return CONTROL_CHARACTERS.findall(shown)


class TestTheStream:
    @given(st.lists(st.text()))
    def test_shows_no_control_character_however_the_text_is_cut(self, pieces):
        behind = io.StringIO(newline="")
        stream = GuardedStream(behind)
        for piece in pieces:
            assert stream.write(piece) == len(piece)

        assert not CONTROL_CHARACTERS.search(behind.getvalue())

    def test_keeps_line_ends_and_tabs(self):
        behind = io.StringIO(newline="")
        stream = GuardedStream(behind)
        for piece in ("a\tb\n", "c\r\n", "d\r", "\ne\rf"):
            stream.write(piece)

        assert behind.getvalue() == "a\tb\nc\nd\ne␍f"

    def test_shows_bytes_and_lines_alike(self):
        behind = Bytes(is_terminal=True)
        stream = GuardedStream(behind)
        stream.buffer.write(HOSTILE.encode())
        stream.writelines([HOSTILE])

        assert not CONTROL_CHARACTERS.search(behind.content().decode())

    def test_passes_a_styled_text(self):
        behind = io.StringIO(newline="")
        GuardedStream(behind).write(Styled("\x1b[31mred\x1b[0m"))

        assert behind.getvalue() == "\x1b[31mred\x1b[0m"

    @pytest.mark.parametrize("is_terminal", [True, False])
    def test_stands_before_terminals_only(self, monkeypatch, is_terminal):
        behind = Bytes(is_terminal=is_terminal)
        monkeypatch.setattr(sys, "stdout", behind)
        with guarded_terminal():
            print(HOSTILE, end="")

        assert sys.stdout is behind
        assert behind.content().decode() == (printable_with_tabs(HOSTILE) if is_terminal else HOSTILE)


@pytest.mark.usefixtures("runtime")
class TestTheTerminalObeysNothing:
    """Each command with hostile text of a model, a file, a title or an id."""

    @pytest.fixture(autouse=True)
    def colours(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)

    def conversation(self) -> str:
        talk = Conversation()
        list(talk.ask(Request(f"write {HOSTILE}")))
        talk.call("rename", {"name": HOSTILE})
        return talk.session_id

    def test_of_an_answer(self, monkeypatch):
        monkeypatch.setitem(FRONT_ENDS, "ask", "specchat.cli.ask:ask")
        ran = command(monkeypatch, "ask", f"write {HOSTILE}", on_terminal=True)

        assert "good ␛]52;c;" in ran.out.decode()
        assert obeyed(ran) == []

    def test_and_a_pipe_gets_the_answer_as_it_is(self, monkeypatch):
        monkeypatch.setitem(FRONT_ENDS, "ask", "specchat.cli.ask:ask")
        ran = command(monkeypatch, "ask", f"write {HOSTILE}")

        assert ran.out == f"{HOSTILE}\n".encode()

    def test_of_a_conversation_line_by_line(self, monkeypatch):
        monkeypatch.setenv("TERM", "dumb")  # without an input line that prompt_toolkit draws
        lines = f"write {CLIPBOARD}{TITLE}\n/inspect\n/model {TITLE}\n/nothing{CLIPBOARD}\n"
        ran = command(monkeypatch, "chat", "--plain", stdin=lines.encode(), on_terminal=True)

        assert "␛]52;c;" in ran.out.decode()
        assert obeyed(ran) == []

    @pytest.mark.parametrize("arguments", [["list"], ["list", "good"], ["export"]], ids=" ".join)
    def test_of_stored_conversations(self, monkeypatch, arguments):
        session = self.conversation()
        monkeypatch.setitem(FRONT_ENDS, "sessions", "specchat.cli.sessions:sessions")
        words = [*arguments, session] if arguments == ["export"] else arguments
        ran = command(monkeypatch, "sessions", *words, on_terminal=True)

        assert "good" in ran.out.decode()
        assert obeyed(ran) == []

    def test_of_stored_edits(self, monkeypatch, tmp_path):
        path = tmp_path / f"a{CLIPBOARD}.py"
        path.write_text(HOSTILE)
        with user_undo_store().lock():
            user_undo_store().add(HOSTILE, [Replacement(path, b"x = 1\n", HOSTILE.encode())])
        monkeypatch.setitem(FRONT_ENDS, "undo", "specchat.cli.undo:undo")
        monkeypatch.chdir(tmp_path)

        for arguments in (["--list"], ["--diff"], []):
            ran = command(monkeypatch, "undo", *arguments, on_terminal=True)
            assert obeyed(ran) == []
            assert ran.code == 0

    def test_of_errors(self, monkeypatch):
        for arguments in ([f"--{HOSTILE}"], [f"--profile={HOSTILE}", "x"], ["-f", f"/{HOSTILE}", "x"]):
            monkeypatch.setitem(FRONT_ENDS, "ask", "specchat.cli.ask:ask")
            ran = command(monkeypatch, "ask", *arguments, on_terminal=True)
            assert ran.code == 2
            assert obeyed(ran) == []

    def test_of_a_project_file_that_is_not_trusted_yet(self, monkeypatch, tmp_path):
        (tmp_path / ".specchat.toml").write_text('[prompt]\nsystem = "\\u001b]52;c;x\\u0007"\n')
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(FRONT_ENDS, "ask", "specchat.cli.ask:ask")
        ran = command(monkeypatch, "ask", "count 1", stdin=b"n\n", on_terminal=True)

        assert "prompt.system" in ran.err
        assert obeyed(ran) == []

    @pytest.mark.parametrize("options", [["--diff"], []], ids=["diff", "review"])
    def test_of_an_edit(self, monkeypatch, tmp_path, options):
        path = tmp_path / f"a{CLIPBOARD}.py"
        path.write_text("x = 1\ny = 1\n")
        new = f"x = 1\ny = 2  # {CLIPBOARD}{TITLE}{HIDDEN}\n"
        said = say(monkeypatch, answers(new), str(path), "set y", *options, on_terminal=True, stdin=b"q\n")

        assert "␛]52;c;" in said.ran.out.decode()
        assert obeyed(said.ran) == []


WRITES_PAST_THE_DOOR = ("__stdout__", "__stderr__", "raw_stream", "Styled")
MAY_WRITE = re.compile(r"__std|raw_stream|Styled|import .*std(out|err)|write\([12],|/dev/tty|input\(|click\.|\brich\.")
ALLOWED = {
    "terminal.py": "the door",
    "repl/line_input.py": "prompt_toolkit draws its input line, and shows control characters itself",
    "repl/terminal_ui.py": "the colours of a hunk",
    "repl/answer_printer.py": "a dimmed text, made printable before",
    "repl/temporary_line.py": "a line that is erased, made printable before",
    "app/inspect_text.py": "the colours of tokens",
    "cli/notes.py": "a progress bar",
}


def test_no_other_code_writes_to_the_terminal_past_the_door():
    found = {name for path in PACKAGE.rglob("*.py") if past_the_door(path) for name in [str(path.relative_to(PACKAGE))]}

    assert found == set(ALLOWED)


@each_row(
    "code",
    [
        "import sys; sys.__stdout__.write('x')", "import os; os.write(1, b'x')", "import os; os.write(2, b'x')",
        "open('/dev/tty', 'w')", "from specchat.terminal import raw_stream",
        "from rich.console import Console; Console(stderr=True)", "from rich.progress import Progress; Progress()",
        "input('x')", "click.confirm('x')", "click.prompt('x', err=False)", "from sys import stdout",
        "Styled(text)",
    ],
)  # fmt: skip
def test_the_search_finds_every_way_past_the_door(tmp_path, code):
    (tmp_path / "x.py").write_text(code)

    assert past_the_door(tmp_path / "x.py")


def past_the_door(path: Path) -> bool:
    """Whether this file names a stream behind the door, or calls something that writes to one by itself."""
    if not MAY_WRITE.search(text := path.read_text(encoding="utf-8")):
        return False
    tree = ast.parse(text)
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    from_rich = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported = {alias.name for alias in node.names}
            names |= imported | ({"__stdout__"} if node.module == "sys" and imported & {"stdout", "stderr"} else set())
            from_rich |= imported if (node.module or "").startswith("rich.") else set()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return bool(names & set(WRITES_PAST_THE_DOOR)) or any(is_direct_write(call, from_rich) for call in calls)


def is_direct_write(call: ast.Call, from_rich: set[str]) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    constants = [each.value for each in call.args if isinstance(each, ast.Constant)]
    keywords = {each.arg: each.value for each in call.keywords}
    match name:
        case "write":
            return constants[:1] in ([1], [2])
        case "open":
            return "/dev/tty" in constants
        case "input":
            return isinstance(call.func, ast.Name)
        case "confirm" | "prompt":  # click prints a question on stdout past the stream, unless it is for stderr
            module = call.func.value if isinstance(call.func, ast.Attribute) else None
            is_error = keywords.get("err")
            return getattr(module, "id", "") == "click" and not (isinstance(is_error, ast.Constant) and is_error.value)
        case "Console" | "Progress":  # rich writes to the stream of the moment, with sequences of its own
            return name in from_rich and "file" not in keywords and "console" not in keywords
    return False
