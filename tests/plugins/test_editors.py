"""The editor clients of plugins/, in headless editors, with the embedded model and a real engine process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "plugins"
BEFORE = '''def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("sizes must not be negative")
    return width * height
'''
INSTRUCTION = "Rename `width` to `breadth`."
AWKWARD = "-do % ! # 'it' \"so\" \\ $HOME `x` <cword> é"
TAIL = "\n\n# unmoved: 100 % \t\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A `specchat` on the PATH, with a separate engine process that ends with the tests."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "specchat"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m specchat "$@"\n')
    program.chmod(0o700)
    runtime = tempfile.mkdtemp(prefix="spec-")
    made = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SPECCHAT_RUNTIME": runtime, "HOME": str(folder)}
    yield made
    subprocess.run([program, "host", "stop"], env=made, capture_output=True, check=False)
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture(scope="module")
def after(environment):
    """The output of the filter itself; from a small model it may be nonsense, but it is a new text."""
    command = ["specchat", "edit", "-", "--stderr", "--lang", "py", INSTRUCTION]
    made = subprocess.run(command, env=environment, input=BEFORE, capture_output=True, text=True, check=False)
    assert 0 == made.returncode, made.stderr
    assert made.stdout != BEFORE
    return made.stdout


@pytest.fixture
def file(tmp_path):
    """A file with a function, and lines that stay unchanged."""
    path = tmp_path / "area.py"
    path.write_text(BEFORE + TAIL)
    return path


def needs(program: str) -> str:
    """The path of a program; without it the test is skipped."""
    return shutil.which(program) or pytest.skip(f"{program} is not installed")


def ran(environment: dict[str, str], *command: object) -> str:
    """The output of a program, which must succeed in time."""
    made = subprocess.run(
        [str(each) for each in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert 0 == made.returncode, made.stdout
    return made.stdout


def waiting(commands, wait: str) -> list[str]:
    """The arguments of an editor for these commands, each rewrite with a wait for its end."""
    steps = [each for command in commands for each in ([command, wait] if "Specchat " in command else [command])]
    return [part for each in steps for part in ("-c", each)]


def in_vim(environment, file, *commands):
    """The output of Vim for these commands."""
    begin = ["-es", "-Nu", "NONE", "--cmd", f"set rtp+={CLIENTS / 'vim'}", "-c", "set verbosefile=/dev/stdout"]
    load = ["-c", "runtime plugin/specchat.vim"]
    return ran(environment, needs("vim"), *begin, *load, *waiting(commands, "call specchat#Wait()"), "-c", "wq!", file)


def in_neovim(environment, file, *commands):
    """The output of Neovim for these commands."""
    begin = ["--headless", "-i", "NONE", "-nu", "NONE", "--cmd", f"set rtp+={CLIENTS / 'neovim'}"]
    load, wait = ["-c", "runtime plugin/specchat.lua"], "lua assert(require('specchat').wait())"
    return ran(environment, needs("nvim"), *begin, *load, *waiting(commands, wait), "-c", "wq!", file)


def in_emacs(environment, file, *forms):
    """The output of Emacs for these forms, each rewrite with a wait for its end."""
    steps = [part for each in forms for part in ("--eval", f"(progn {each} (specchat-wait))")]
    emacs = needs("emacs")
    return ran(environment, emacs, "-Q", "--batch", "-l", CLIENTS / "emacs" / "specchat.el", file, *steps,
               "-f", "save-buffer")  # fmt: skip


def lisp(text: str) -> str:
    """A string in Lisp."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


BOTH = pytest.mark.parametrize("inside", [in_vim, pytest.param(in_neovim, marks=pytest.mark.full)])


@pytest.mark.full
@BOTH
def test_a_range_is_rewritten_and_the_rest_stays(environment, file, after, inside):
    inside(environment, file, f"1,5Specchat {INSTRUCTION}")

    assert after + TAIL == file.read_text()


@pytest.mark.full
@BOTH
def test_one_undo_reverts_it(environment, file, inside):
    inside(environment, file, f"1,5Specchat {INSTRUCTION}", "undo")

    assert BEFORE + TAIL == file.read_text()


@pytest.fixture
def broken(environment):
    """An environment in which every edit fails."""
    return {**environment, "SPECCHAT_MODELS_TARGET": "/gone"}


@pytest.mark.full
@BOTH
def test_a_failure_leaves_the_text_and_shows_a_message(broken, file, inside):
    said = inside(broken, file, f"%Specchat {AWKWARD}")

    assert re.search(r"specchat: .*/gone.*; the text is unchanged", said.replace("\n", " "))
    assert BEFORE + TAIL == file.read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    "inside", [in_vim, *(pytest.param(each, marks=pytest.mark.full) for each in (in_neovim, in_emacs))]
)
def test_the_instruction_is_passed_on_unchanged(environment, tmp_path, file, inside):
    fake = tmp_path / "specchat"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/heard"\nexec cat\n')
    fake.chmod(0o700)

    said = f"(specchat-edit 1 10 {lisp(AWKWARD)})" if inside is in_emacs else f"1,2Specchat {AWKWARD}"
    inside({**environment, "PATH": f"{tmp_path}:{environment['PATH']}"}, file, said)

    assert ["edit", "-", "--stderr", "--lang", "py", "--", AWKWARD] == (tmp_path / "heard").read_text().splitlines()
    assert BEFORE + TAIL == file.read_text()


@pytest.mark.full
def test_emacs_rewrites_a_region_and_undo_reverts_it(environment, file, after):
    region = f"(specchat-edit (point-min) {len(BEFORE) + 1} {lisp(INSTRUCTION)})"
    in_emacs(environment, file, region)
    assert after + TAIL == file.read_text()

    file.write_text(BEFORE + TAIL)
    in_emacs(environment, file, "(buffer-enable-undo)", region, "(undo-boundary)", "(undo)")
    assert BEFORE + TAIL == file.read_text()


@pytest.mark.full
def test_emacs_leaves_the_text_when_it_fails(broken, file):
    said = in_emacs(broken, file, f"(specchat-edit (point-min) (point-max) {lisp(AWKWARD)})")

    assert re.search(r"specchat: .*/gone.*; the text is unchanged", said.replace("\n", " "))
    assert BEFORE + TAIL == file.read_text()


@pytest.mark.full
def test_emacs_compiles_it_without_a_warning(environment, tmp_path):
    copy = shutil.copy(CLIENTS / "emacs" / "specchat.el", tmp_path)

    said = ran(environment, needs("emacs"), "-Q", "--batch", "--eval", "(setq byte-compile-error-on-warn t)",
               "-f", "batch-byte-compile", copy)  # fmt: skip
    assert "Warning" not in said


@pytest.mark.full
def test_the_filter_of_vs_code_works_without_it(environment, tmp_path):
    folder = shutil.copytree(CLIENTS / "vscode" / "src", tmp_path / "src").parent
    modules = CLIENTS / "vscode" / "node_modules"
    if not modules.is_dir():
        pytest.skip("npm ci was not run in plugins/vscode")
    (folder / "node_modules").symlink_to(modules)
    for name in ("tsconfig.json", "package.json"):
        shutil.copy(CLIENTS / "vscode" / name, folder)

    ran(environment, needs("node"), modules / "typescript" / "bin" / "tsc", "-p", folder)
    assert "# pass 5\n# fail 0\n" in ran(environment, needs("node"), "--test", "--test-reporter=tap",
                                         folder / "out" / "filter.test.js").replace("# cancelled 0\n", "")  # fmt: skip


def test_no_client_is_long_and_none_knows_a_model():
    clients = [path for path in CLIENTS.rglob("*") if path.suffix in (".vim", ".lua", ".el", ".ts")]
    mine = [path for path in clients if "node_modules" not in path.parts]

    assert {".vim", ".lua", ".el", ".ts"} == {path.suffix for path in mine}
    assert all(len(path.read_text().splitlines()) < 200 for path in mine)
    assert not [path for path in mine if re.search(r"temperature|variant|https?:", path.read_text())]
