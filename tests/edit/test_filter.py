"""The filter as editors use it: a pipe that never loses text, and Vim itself if it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.edit.scripted import answers, say
from tests.host.conftest import FAKE_HOST
from tests.host.test_spawn import ROOT

pytestmark = pytest.mark.usefixtures("runtime")

TEXT = b"\tx = 1\r\n\ty = 2"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("I'm sorry, I cannot do that.", 3),
        ("", 3),
        ("x = 1\n# ... rest of the code ...\n", 3),
        ("Here is the code:\n\n```python\nx = 1\n```\n", 3),
        ("x = (\ny = 2", 4),
        ("x = 1\ny = 2", 9),
    ],
)
def test_for_every_bad_answer_the_filter_prints_its_input_and_no_message(monkeypatch, answer, code):
    said = say(monkeypatch, answers(*[answer] * 5), "-", "--lang", "py", "set x", stdin=b"x = 1\r\ny = 2")

    assert (code, b"x = 1\r\ny = 2", "") == (said.ran.code, said.ran.out, said.ran.err)


def test_the_plan_of_a_piped_text_is_printed_instead_of_an_edit(monkeypatch):
    said = say(monkeypatch, [], "-", "rename total to amount", "--plan", stdin=b"def total(a):\n    return a\n")

    assert (0, []) == (said.ran.code, said.asked)
    assert said.ran.out.startswith(b"stdin.py: 1. rename function `total` to `amount`: ")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("The code is fine as it is. You could rename x to something longer, so that people understand it.", 3),
        ("1. Open the file.\n2. Rename `x`.\n3. Save the file and run it again.", 4),
        ("I would use an editor for that.\n\n```sh\nsed -i s/x/z/ file\n```\n", 3),
        ("```python\nI renamed the variable as you asked for.\n```", 3),
    ],
)
def test_without_a_language_talk_is_never_printed_as_the_text(monkeypatch, answer, code):
    text = b"x = 1\ny = 2\n\nprint(x + y)\n"

    said = say(monkeypatch, answers(*[answer] * 5), "-", "rename x", stdin=text)

    assert (code, text, "") == (said.ran.code, said.ran.out, said.ran.err)


PIPED = b"def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (PIPED.decode().replace("a + b", "(a + b"), 4),
        (PIPED.decode().replace("add(a, a)", "plus(a, a)"), 4),
        ("```python\ndef other(x):\n    yield x\n```", 3),
        ("```python\ndef double(a):\n    return 2 * a\n\n\nprint(1)\n```", 8),
        ("- a list\n- of words\n- that is valid YAML\n", 4),
    ],
    ids=["broken", "an undefined name", "another text", "a part", "another language"],
)
def test_without_a_language_the_text_tells_it_and_every_check_applies(monkeypatch, answer, code):
    said = say(monkeypatch, answers(*[answer] * 5), "-", "make it faster", stdin=PIPED)

    assert (code, PIPED, "") == (said.ran.code, said.ran.out, said.ran.err)


def test_the_reason_of_a_failed_filter_is_on_stderr_when_asked_for(monkeypatch):
    answer = "```python\nYou can make it faster by calling it less often than you do now.\n```"

    said = say(monkeypatch, answers(*[answer] * 2), "-", "make it faster", "--stderr", stdin=PIPED)

    assert (3, PIPED) == (said.ran.code, said.ran.out)
    assert said.ran.err.splitlines()[0].endswith("; now trying search/replace blocks")
    assert "prose instead of the text" in said.ran.err.splitlines()[-1]


def test_a_text_that_lost_a_function_is_taken_only_if_that_is_allowed(monkeypatch):
    new = PIPED.decode().replace("\n\ndef double(a):\n    return add(a, a)\n", "\nx = 1\ny = 2\n")

    refused = say(monkeypatch, answers(new, new), "-", "make it faster", stdin=PIPED)
    allowed = say(monkeypatch, answers(new, new), "-", "make it faster", "--allow-shrink", stdin=PIPED)

    assert (8, PIPED) == (refused.ran.code, refused.ran.out)
    assert (0, new.encode()) == (allowed.ran.code, allowed.ran.out)


ADD = b'def add(a, b):\n    """The sum."""\n    # both are numbers\n    return a + b\n'
DOCUMENTED = ADD + b"\n\ndef half(a):\n    return a / 2\n"
WITHOUT_DOCSTRING = DOCUMENTED.replace(b'    """The sum."""\n', b"").decode()


def test_a_question_is_answered_on_stderr_and_the_text_comes_back(monkeypatch):
    said = say(monkeypatch, answers("It adds two numbers."), "-", "explain this", "--stderr", stdin=DOCUMENTED)
    silent = say(monkeypatch, answers("It adds two numbers."), "-", "explain this", stdin=DOCUMENTED)

    assert (9, DOCUMENTED) == (said.ran.code, said.ran.out)
    assert "It adds two numbers." in said.ran.err
    assert "asks for no change" in said.ran.err
    assert (9, DOCUMENTED, "") == (silent.ran.code, silent.ran.out, silent.ran.err)


@pytest.mark.parametrize(
    ("new", "instruction", "code"),
    [
        (DOCUMENTED.decode().replace("    # both are numbers\n", ""), "make add faster", 8),
        (WITHOUT_DOCSTRING.replace("a / 2", "a // 2"), "use // in half, without docstrings", 0),
        (WITHOUT_DOCSTRING, "delete the docstring of add, nothing else", 0),
        (DOCUMENTED.decode().replace("# both are numbers", "# zwei Zahlen"), "translate the comments to German", 0),
    ],
)
def test_a_docstring_or_comment_goes_only_when_the_instruction_says_so(monkeypatch, new, instruction, code):
    said = say(monkeypatch, answers(*[new] * 5), "-", instruction, stdin=DOCUMENTED)

    assert (code, DOCUMENTED if code else new.encode()) == (said.ran.code, said.ran.out)


def test_a_docstring_of_another_function_is_put_back(monkeypatch):
    new = WITHOUT_DOCSTRING.replace("a / 2", "a // 2")

    said = say(monkeypatch, answers(new), "-", "use // in half", stdin=DOCUMENTED)

    assert (0, DOCUMENTED.replace(b"a / 2", b"a // 2")) == (said.ran.code, said.ran.out)


@pytest.mark.parametrize("fence", ["{}", "```python\n{}\n```", "```\n{}\n```\n"])
def test_a_good_answer_keeps_the_format_of_the_text(monkeypatch, fence):
    said = say(
        monkeypatch, answers(fence.format("x = 3\n\ty = 4")), "-", "--lang", "py", "set x to 3 and y to 4", stdin=TEXT
    )

    assert (0, b"\tx = 3\r\n\ty = 4", "") == (said.ran.code, said.ran.out, said.ran.err)


def test_a_text_in_latin_1_stays_so(monkeypatch):
    said = say(monkeypatch, answers("ä = ü\n"), "-", "umlauts", stdin=b"\xe4 = \xf6\n")

    assert (0, b"\xe4 = \xfc\n") == (said.ran.code, said.ran.out)


@pytest.fixture
def program(tmp_path, runtime) -> Path:
    """`specchat` as a program that talks to the fake host of the test."""
    program = tmp_path / "specchat"
    program.write_text(f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from specchat.host import spawn
from specchat.cli.main import run
spawn.HOST_COMMAND = {FAKE_HOST!r}
sys.exit(run(sys.argv[1:]))
""")
    program.chmod(0o755)
    return program


@pytest.mark.full
def test_a_real_pipe_carries_the_new_text_or_the_old_one(program):
    for words, code, out in [
        ("replace a b", 0, b"b\n"),
        ("fail", 6, b"a\n"),
        ("crash", 1, b"a\n"),
        ("--no", 2, b"a\n"),
    ]:
        ran = subprocess.run([program, "edit", "-", words], input=b"a\n", capture_output=True, check=False)

        assert (code, out, b"") == (ran.returncode, ran.stdout, ran.stderr)


# A line for each way to end: what the filter is asked on it, and what must stand there afterwards.
ENDINGS = [
    ("replace old new", "new"),
    ("write '// ... rest of the code ...'", "old"),  # 3
    ("write x = --lang py", "old"),  # 4
    ("fail", "old"),  # 6
    ("replace absent x", "old"),  # 9
    ("crash", "old"),  # 1
    ("--nonsense", "old"),  # 2
    ("read --timeout 0.1", "old"),  # 3
]


@pytest.mark.full
@pytest.mark.parametrize(
    "merging",
    [pytest.param("", id="apart", marks=pytest.mark.full), pytest.param("set shellredir=>%s\\ 2>&1", id="merged")],
)
@pytest.mark.parametrize("editor", ["vim", "nvim"])
def test_an_editor_keeps_its_text_however_the_filter_ends(program, tmp_path, editor, merging):
    if not shutil.which(editor):
        pytest.skip(f"{editor} is not installed")
    file = tmp_path / "text"
    file.write_text("old\n" * len(ENDINGS))
    asked = [f"{line}!{program} edit - {words}" for line, (words, _left) in enumerate(ENDINGS, 1)]
    script = tmp_path / "script.vim"
    script.write_text("\n".join([merging, *asked, "wq"]))

    command = [editor, "-es", "-u", "NONE", "-i", "NONE", "-S", script, file]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=False)

    assert [left for _words, left in ENDINGS] == file.read_text().splitlines()
