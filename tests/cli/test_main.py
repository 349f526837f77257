"""The command line: what is printed where, and the exit code of everything that can go wrong."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specchat import __version__
from specchat.chat.events import Failed, Routed, TextDelta
from specchat.chat.request import Attachment
from specchat.cli.lazy_group import LazyCommand
from specchat.cli.main import COMMANDS, CONNECTION_CLOSED, run, with_default_command
from specchat.errors import ModelError
from specchat.plugins.own_plugins import OWN_PLUGINS
from tests.each_row import each_row
from tests.front import Bytes
from tests.plugins.conftest import rediscover
from tests.processes import modules_after
from tests.scripted_session import ScriptedSession, run_with, scripted_answer

SOURCES = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "textual", "tokenizers", "jinja2", "importlib.metadata"}


class Opener:
    """Opens scripted sessions, and remembers for which profile."""

    def __init__(self, *scenes) -> None:
        self.session = ScriptedSession(scenes or [scripted_answer(["A fox", " is quick."])])

    def __call__(self, profile):
        self.profile = profile
        return self.session

    @property
    def request(self):
        return self.session.requests[-1]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """No profiles but the shipped ones."""
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))


def pipe(monkeypatch, content: bytes) -> None:
    """Let a file with this content be standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def in_process(code: str, **streams) -> subprocess.Popen[bytes]:
    """A process that runs a command with a scripted session that says a line for ever."""
    program = (
        "import itertools, sys, time\n"
        "from specchat.chat.events import *\n"
        "from tests.scripted_session import ScriptedSession, run_with\n"
        "class Endless(ScriptedSession):\n"
        "    def ask(self, request, cancelled):\n"
        "        yield Routed('plain', 0, 'pinned', 1)\n"
        "        while not cancelled.is_set():\n"
        "            yield TextDelta('a line\\n')\n"
        "            time.sleep(0.001)\n"
        "        yield Finished('cancelled', Totals(completion_tokens=3))\n"
        f"{code}\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], **streams)


def test_help_lists_every_command_and_imports_nothing_heavy(capsys):
    assert run(["--help"]) == 0

    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)
    words = " ".join(printed.split())
    assert all(command.help in words for command in COMMANDS.values())
    assert not HEAVY & modules_after("from specchat.cli.main import run; run(['--help'])")


@each_row("arguments", [["--version"], ["ask", "--help"], ["demo", "--help"], ["ask", "x", "-P", "gone"]])
def test_nothing_heavy_is_imported_before_a_model_is_needed(arguments):
    assert not HEAVY & modules_after(f"from specchat.cli.main import run; run({arguments})")


def test_importing_the_package_imports_nothing_heavy():
    assert not (HEAVY | {"click"}) & modules_after("import specchat")


def test_the_version_is_one_line(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"specchat {__version__}\n"


@each_row("later", COMMANDS.values())
def test_every_command_is_where_the_list_says(later: LazyCommand):
    assert later.load().help


def test_the_answer_goes_to_stdout_and_one_line_to_stderr(capsys):
    assert run_with(["ask", "What is", "a fox?"], Opener()) == 0

    printed = capsys.readouterr()
    assert printed.out == "A fox is quick.\n"
    assert printed.err == ("4 tokens · 200 tokens/s · 2.0x faster · accepted 50 % · lookup 2 of 2 steps\n")


def test_words_make_one_question():
    opener = Opener()
    run_with(["ask", "What is", "a fox?"], opener)

    assert opener.request.text == "What is a fox?"
    assert opener.session.is_closed


def test_options_change_the_profile():
    opener = Opener()
    options = (
        "--variant lookup --seed 3 --temperature 0.5 --top-p 0.9 --top-k 20 --min-p 0.1 --max-tokens 5 --dtype bfloat16"
    )

    words = ["-P", "edit", "--exact", "--target", "some/where", "--draft", "", *options.split()]
    assert run_with(["ask", "x", *words], opener) == 0

    profile = opener.profile
    assert (profile.name, profile.models.target, profile.models.draft, profile.models.dtype) == (
        "edit",
        "some/where",
        "",
        "bfloat16",
    )
    assert (profile.speculation.variant, profile.speculation.exact, profile.limits.answer) == ("lookup", True, 5)
    assert (profile.sampling.seed, profile.sampling.temperature, profile.sampling.top_k) == (3, 0.5, 20)
    assert (profile.sampling.top_p, profile.sampling.min_p) == (0.9, 0.1)


@each_row("arguments", [["ask"], ["ask", "-"]])
def test_a_question_can_be_piped_in(monkeypatch, arguments):
    opener = Opener()
    pipe(monkeypatch, "Was ist ein Füchslein?\n".encode())

    assert run_with(arguments, opener) == 0
    assert opener.request.text == "Was ist ein Füchslein?\n"


def test_a_dash_stands_for_what_is_piped_in(monkeypatch):
    opener = Opener()
    pipe(monkeypatch, b"x = 1")

    assert run_with(["ask", "Explain", "-"], opener) == 0
    assert opener.request.text == "Explain x = 1"


@pytest.mark.full
def test_what_is_piped_in_beside_a_question_is_attached(tmp_path):
    path = tmp_path / "piped"
    path.write_bytes(b"x = 1\n")
    code = "import io; e = Endless(); e.ask = lambda request, cancelled: iter([TextDelta(repr(request.files))])\n"
    with path.open("rb") as piped:
        process = in_process(
            f"{code}sys.exit(run_with(['ask', 'Why?'], lambda profile: e))", stdin=piped, stdout=subprocess.PIPE
        )
        printed, _ = process.communicate(timeout=180)

    assert printed.decode() == repr((Attachment("stdin", "x = 1\n"),)) + "\n"


def test_files_are_attached_under_their_names(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_bytes(b"\xef\xbb\xbfx = 1\n")
    second.write_bytes("é".encode())
    opener = Opener()

    assert run_with(["ask", "Why?", "-f", str(first), "--file", str(second)], opener) == 0
    assert opener.request.files == (Attachment(str(first), "x = 1\n"), Attachment(str(second), "é"))


@each_row(
    "arguments, said, code",
    [
        (["ask", "x", "-f", "gone.txt"], "gone.txt: there is no such file or folder", 2),
        (["ask", "x", "-f", "."], ".: no text to read; left out: 2 not text", 2),
        (["ask", "x", "-f", "nul.bin"], "nul.bin: a binary file", 2),
        (["ask", "x", "-f", "odd.txt"], "odd.txt: not text (byte 0 is not UTF-8)", 2),
        (["ask", " "], "the prompt is empty", 2),
        (["ask", "\udcff"], "the question is not a text in UTF-8", 2),
        (["ask", "x", "-P", "edti"], "unknown profile 'edti'; did you mean 'edit'?", 2),
        (["ask", "x", "--temperature", "9"], "sampling.temperature must lie between 0 and 5, not 9.0", 2),
        (["ask", "x", "--max-tokens", "9999"], "limits.answer (9999) must be below limits.context (8192)", 2),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code(tmp_path, monkeypatch, capsys, arguments, said, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nul.bin").write_bytes(b"a\0b")
    (tmp_path / "odd.txt").write_bytes(b"\xff\x01\x02")
    opener = Opener()

    assert run_with(arguments, opener) == code

    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.startswith("specchat: ")
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not opener.session.requests


@each_row("arguments", [["ask", "x", "--variant", "magic"], ["aks", "x"], ["ask", "--seed", "many", "x"]])
def test_a_wrong_option_is_a_matter_of_usage(capsys, arguments):
    assert run_with(arguments, Opener()) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("specchat: ")
    assert printed.count("\n") == 1
    assert "--help' shows what can be given" in printed


@each_row(
    "arguments, said",
    [
        (["ask", "x", "--tempratur", "1"], "no such option '--tempratur'. Did you mean --temperature? "),
        (["--profil", "x"], "no such option '--profil'. Did you mean --profile? "),
        (["ask", "x", "--zzz"], "no such option '--zzz' "),
        (["ask", "x", "-r", "y"], "no such option '-r' "),
    ],
)
def test_an_option_that_is_mistyped_is_guessed(capsys, arguments, said):
    assert run_with(arguments, Opener()) == 2
    assert f"specchat: {said}('specchat " in capsys.readouterr().err


@each_row("group", ["host", "models", "config"])
def test_a_group_without_a_command_shows_its_help_and_nothing_else(capsys, group):
    assert run_with([group], Opener()) == 2

    printed = capsys.readouterr()
    assert printed.err.startswith(f"Usage: specchat {group} ")
    assert "can be given" not in printed.err


@each_row("content, said", [(b"", "the prompt is empty"), (b"\0", "standard input: a binary file")])
def test_nothing_useful_on_standard_input_is_one_line(monkeypatch, capsys, content, said):
    pipe(monkeypatch, content)

    assert run_with(["ask"], Opener()) == 2
    assert said in capsys.readouterr().err


def test_without_a_question_a_terminal_gets_the_usage(monkeypatch, capsys):
    pipe(monkeypatch, b"never read")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    assert run_with(["ask"], Opener()) == 2
    assert 'usage: specchat ask "QUESTION"' in capsys.readouterr().err


def test_a_failure_keeps_what_was_said_and_its_own_exit_code(capsys):
    failing = [Routed("plain", 0, "pinned", 1), TextDelta("A fo"), Failed("the window is full", 6)]

    assert run_with(["ask", "x"], Opener(failing)) == 6

    printed = capsys.readouterr()
    assert printed.out == "A fo\n"
    assert printed.err == "specchat: the window is full\n"


@each_row(
    "error, code, said",
    [
        (ModelError("x: no model there"), 7, "specchat: x: no model there\n"),
        (KeyboardInterrupt(), 130, "specchat: interrupted\n"),
        (ConnectionResetError("[Errno 104]"), 7, f"specchat: {CONNECTION_CLOSED}\n"),
        (RuntimeError("boom\nmore"), 1, "specchat: unexpected RuntimeError: boom (SPECCHAT_TRACEBACK=1 shows where)\n"),
    ],
)
def test_what_goes_wrong_while_loading_is_one_line(capsys, error, code, said):
    def opener(_profile):
        raise error

    assert run_with(["ask", "x"], opener) == code
    assert capsys.readouterr().err.lstrip("\n") == said


def test_a_bug_can_show_where_it_is(monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_TRACEBACK", "1")

    run_with(["ask", "x"], lambda _profile: 1 / 0)

    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_keeps_what_was_said():
    code = "sys.exit(run_with(['ask', 'x'], lambda profile: Endless()))"
    with in_process(code, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a line\n"
        process.send_signal(2)
        printed, said = process.communicate(timeout=180)

    assert process.returncode == 130
    assert printed.replace(b"a line\n", b"") == b""
    assert said.startswith(b"3 tokens")
    assert said.endswith("· stopped, the partial answer is kept\n".encode())
    assert said.count(b"\n") == 1


@pytest.mark.full
def test_a_reader_who_leaves_is_no_error():
    code = "sys.exit(run_with(['ask', 'x'], lambda profile: Endless()))"
    with in_process(code, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        _, said = process.communicate(timeout=180)

    assert process.returncode == 141
    assert said == b""


INTERRUPTED_RUN = """
import os, signal, sys
left = int(sys.argv.pop(1))
def interrupt(_frame, event, _argument):
    global left
    left -= event == "call"
    if left == 0:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
from specchat.__main__ import main
sys.setprofile(interrupt)
main()
"""


@pytest.mark.parametrize("calls", [50, 2000, 10_000, 30_000, 50_000])
def test_ctrl_c_at_any_call_of_the_command_ends_it_without_a_traceback(calls: int):
    words = [sys.executable, "-c", INTERRUPTED_RUN, str(calls), "sessions", "list"]

    ran = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) in ((-signal.SIGINT, ""), (130, ""), (130, "specchat: interrupted\n"))


def test_what_is_imported_before_ctrl_c_is_in_our_hands_imports_nothing():
    """While Python starts, and in the script of pip, Ctrl-C prints its traceback: no longer than necessary."""
    code = "import os, sys; before = {*sys.modules}; sys.path.insert(0, sys.argv[1]); import specchat.__main__; "
    words = [sys.executable, "-S", "-c", f"{code}print(*{{*sys.modules}} - before)", str(SOURCES)]

    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    assert {"__future__", "specchat", "specchat.__main__"} == {*found}


def test_the_demo_answers_every_question_twice_and_compares(capsys):
    opener = Opener(*[scripted_answer(["The same."])] * 2)

    assert run_with(["demo"], opener) == 0

    assert [request.variant for request in opener.session.requests] == ["plain", "auto"]
    assert len({request.text for request in opener.session.requests}) == 1
    err = capsys.readouterr().err
    assert err.count(" tokens/s ·") == 2
    assert err.splitlines()[-3].startswith("the same text, ")
    assert ["", "now: specchat"] == err.splitlines()[-2:]


def test_on_a_terminal_the_demo_is_broken_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    screen = Bytes(is_terminal=True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)

    assert run_with(["demo"], Opener(*[scripted_answer(["the lighthouse ", "at Cape ", "Rosa"] * 4)] * 2)) == 0

    lines = re.sub(r".*\r\x1b\[2K|\x1b\[\S*?[A-Za-z]", "", screen.content().decode()).splitlines()
    assert "the lighthouse at Cape Rosathe" in [line.rstrip() for line in lines]
    assert all(len(line.rstrip()) <= 40 for line in lines), lines


def test_the_demo_does_not_claim_that_different_texts_are_the_same(capsys):
    opener = Opener(scripted_answer(["One."]), scripted_answer(["Another."]))

    assert run_with(["demo"], opener) == 0
    assert capsys.readouterr().err.splitlines()[-3].startswith("the texts differ: ")


def test_with_a_real_model_the_demo_asks_a_question_and_for_an_edit(capsys):
    opener = Opener(*[scripted_answer(["The same."])] * 4)

    assert run_with(["demo", "--target", "org/name"], opener) == 0
    assert [len(request.files) for request in opener.session.requests] == [0, 0, 1, 1]


def test_the_demo_takes_a_question(capsys):
    opener = Opener(*[scripted_answer(["The same."])] * 2)

    assert run_with(["demo", "Why?"], opener) == 0
    assert {"Why?"} == {request.text for request in opener.session.requests}


@each_row(
    "arguments, is_terminal, command",
    [
        ([], True, "chat"), ([], False, "chat"), (["-c"], True, "chat"), (["-r", "x"], False, "chat"),
        (["--private"], True, "chat"), (["-P", "code"], True, "chat"), (["--temperature", "1"], False, "chat"),
        (["--plain"], True, "chat"), (["-p", "x", "--json"], True, "script"), (["ask", "x"], True, "ask"),
        (["What is a list?"], True, "chat"), (["What is a list?"], False, "ask"), (["What"], True, "What"),
        (["--help"], True, "--help"), (["--version"], True, "--version"),
    ],
)  # fmt: skip
def test_without_a_command_it_talks_as_the_terminal_allows(arguments, is_terminal, command):
    assert with_default_command(arguments, is_terminal)[0] == command


@each_row("word, meant", [("modls", "'models'"), ("docotr", "'doctor'"), ("sesions", "'sessions'")])
def test_a_command_that_is_mistyped_is_guessed(capsys, word, meant):
    assert run([word]) == 2
    assert f"No such command {word!r}. Did you mean {meant}" in capsys.readouterr().err


@each_row(
    "words",
    [
        ["train"],
        ["train", "head", "--kind", "eagle3"],
        ["help", "train"],
        ["apply", "a.py"],
        ["fleet"],
        ["fleet", "join", "x", "--save", "y"],
        ["mcp", "git"],
        ["acp"],
        ["serve", "--port", "0"],
        ["editors", "install", "vim"],
        ["bench", "drafters", "prompts.jsonl"],
        ["vram", "embedded"],
        ["stats", "--by", "day"],
        ["inspect", "--svg", "a.svg"],
        ["doctor", "--gpu"],
    ],
)
def test_the_command_of_a_plugin_that_is_missing_says_how_to_install_it(capsys, monkeypatch, words):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "")
    rediscover()

    assert 2 == run(words)
    output = capsys.readouterr()
    assert "" == output.out
    plugin = next((plugin for command, plugin in OWN_PLUGINS.items() if command in words), "bench")
    line = f"pip install ./plugins/specchat-{plugin}'"
    assert [line in each for each in output.err.splitlines()] == [True]
    rediscover()


def test_a_command_explains_its_own_options_and_names_where_the_others_are(capsys):
    for command in ("chat", "ask", "edit"):
        assert run([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "specchat help engine" in " ".join(shown.split())
        assert "--top-k" not in shown

    assert run(["help", "engine"]) == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--target", "--top-k", "--exact", "--dry-run"))


def test_the_options_of_all_commands_are_two_screens_and_one_of_them_is_explained_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["help", "engine"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 2 * 24
    assert not [word for word in ("eagle3", "mtp", "lookup") if word in " ".join(shown)]
    assert [line for line in shown if line.startswith("--weights")]

    assert run(["help", "engine", "weights"]) == 0
    assert "docs/quantization.md has their costs" in " ".join(capsys.readouterr().out.split())
    assert run(["help", "engine", "wieghts"]) == 2
    assert "'wieghts' is none of these options; 'specchat help engine' lists them" in capsys.readouterr().err


def test_the_help_says_what_a_drafter_is_before_it_names_one(capsys):
    assert run(["help", "drafters"]) == 0
    shown = capsys.readouterr().out
    assert -1 < shown.index("proposes the next") < shown.index("eagle3")
    assert "--variant NAME" in shown


def test_help_takes_the_names_of_commands(capsys):
    assert run(["help", "models", "pull"]) == 0
    assert "Usage: specchat models pull" in capsys.readouterr().out
    assert run(["help", "nothing"]) == 2
    assert "'nothing' is no command" in capsys.readouterr().err
