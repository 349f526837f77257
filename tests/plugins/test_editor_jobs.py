"""The clients of Vim, Neovim and Emacs do not block their editor. The filter is a shell script that tests steer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.plugins.test_editors import CLIENTS, lisp, needs, ran

TEXT = "def area(width, height):\n    return width * height\n"
NEW = TEXT.replace("width", "breadth")
TAIL = "\n\nprint(area(2, 3))\n"
# The instruction is a shell command that runs before the answer.
FILTER = """#!/bin/sh
[ "$1" = edit ] || exec echo "specchat, version 0"
for instruction; do :; done
if eval "$instruction"; then sed s/width/breadth/g; else echo "specchat: no usable answer" >&2; cat; exit 3; fi
"""


@dataclass(frozen=True)
class Steps:
    """One editor: its command line for a file and steps, and each step in its language."""

    command: Callable[[Path, Sequence[str]], Sequence[object]]
    rewrite: Callable[[str], str]  # of the first two lines
    wait: str
    stop: str
    add_line_above: str
    change_line: str
    undo: str
    touch: Callable[[Path], str]


def vim_command(file: Path, steps: Sequence[str]) -> Sequence[object]:
    options = [part for step in ["runtime plugin/specchat.vim", *steps, "wq!"] for part in ("-c", step)]
    begin = ["-es", "-Nu", "NONE", "--cmd", f"set rtp+={CLIENTS / 'vim'}", "-c", "set verbosefile=/dev/stdout"]
    return [needs("vim"), *begin, *options, file]


def neovim_command(file: Path, steps: Sequence[str]) -> Sequence[object]:
    options = [part for step in ["runtime plugin/specchat.lua", *steps, "wq!"] for part in ("-c", step)]
    return [
        needs("nvim"), "--headless", "-i", "NONE", "-nu", "NONE", "--cmd", f"set rtp+={CLIENTS / 'neovim'}", *options,
        file,
    ]  # fmt: skip


def emacs_command(file: Path, steps: Sequence[str]) -> Sequence[object]:
    options = [part for step in ["(buffer-enable-undo)", *steps, "(save-buffer)"] for part in ("--eval", step)]
    return [needs("emacs"), "-Q", "--batch", "-l", CLIENTS / "emacs" / "specchat.el", file, *options]


EDITORS = {
    "Vim": Steps(
        vim_command, "1,2Specchat {}".format, "call specchat#Wait()", "SpecchatStop", "call append(0, '# above')",
        "call setline(2, '    return 1')", "undo", "call writefile([], '{}')".format,
    ),
    "Neovim": Steps(
        neovim_command, "1,2Specchat {}".format, "lua assert(require('specchat').wait(60000))", "SpecchatStop",
        "call append(0, '# above')", "call setline(2, '    return 1')", "undo", "call writefile([], '{}')".format,
    ),
    "Emacs": Steps(
        emacs_command, lambda it: f"(specchat-edit 1 {len(TEXT) + 1} {lisp(it)})", "(specchat-wait)", "(specchat-stop)",
        '(progn (goto-char 1) (insert "# above\\n") (undo-boundary))',
        '(progn (goto-char 1) (forward-line) (insert "x"))', "(progn (undo-boundary) (undo))",
        '(write-region "" nil "{}")'.format,
    ),
}  # fmt: skip
each_editor = pytest.mark.parametrize("editor", EDITORS.values(), ids=EDITORS)


@pytest.fixture
def edited(tmp_path):
    """Returns a function that runs steps in an editor, and returns its output and the saved text."""
    program, file = tmp_path / "specchat", tmp_path / "area.py"
    program.write_text(FILTER)
    program.chmod(0o700)
    file.write_text(TEXT + TAIL)

    def run(editor: Steps, *steps: str) -> tuple[str, str]:
        environment = {"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        said = ran(environment, *editor.command(file, steps))
        return said, file.read_text()

    return run


@each_editor
def test_the_editor_works_on_while_the_filter_runs(edited, tmp_path, editor):
    flag = tmp_path / "flag"
    rewrite = editor.rewrite(f"until [ -e {flag} ]; do sleep 0.02; done")

    # Were the editor blocked, the file that the filter waits for would never be written.
    _, text = edited(editor, rewrite, editor.add_line_above, editor.touch(flag), editor.wait)

    assert text == f"# above\n{NEW}{TAIL}"


@each_editor
def test_one_undo_reverts_the_edit_and_nothing_else(edited, editor):
    _, text = edited(
        editor, editor.add_line_above, editor.rewrite("true").replace("1,2", "2,3"), editor.wait, editor.undo
    )

    assert text == f"# above\n{TEXT}{TAIL}"


@each_editor
def test_a_rewrite_can_be_stopped(edited, editor):
    said, text = edited(editor, editor.rewrite("exec sleep 60"), editor.stop, editor.wait)

    assert "specchat: stopped; the text is unchanged" in said
    assert text == TEXT + TAIL


@each_editor
def test_the_reason_of_a_failure_is_shown(edited, editor):
    said, text = edited(editor, editor.rewrite("false"), editor.wait)

    assert "specchat: no usable answer; the text is unchanged" in said
    assert text == TEXT + TAIL


@each_editor
def test_a_text_that_was_changed_meanwhile_is_not_replaced(edited, tmp_path, editor):
    flag = tmp_path / "flag"
    rewrite = editor.rewrite(f"until [ -e {flag} ]; do sleep 0.02; done")

    said, text = edited(editor, rewrite, editor.change_line, editor.touch(flag), editor.wait)

    assert "specchat: the text was changed meanwhile; nothing is replaced" in said
    assert "breadth" not in text


def test_the_health_of_neovim_names_the_program_and_what_this_version_lacks(edited, tmp_path):
    report = tmp_path / "report"
    edited(EDITORS["Neovim"], "checkhealth specchat", f"w! {report}", "bdelete!")

    assert "specchat" in report.read_text()
    assert "ghost text" in report.read_text()


def test_an_old_neovim_says_what_the_language_server_needs(edited):
    said, _ = edited(EDITORS["Neovim"], "lua require('specchat').lsp({ 'python' })")

    has_ghost_text = "ghost" not in said and "NVIM v0.12" in ran({"PATH": "/usr/bin:/bin"}, needs("nvim"), "--version")
    assert has_ghost_text or "ghost text needs Neovim 0.12" in said or "ghost text 0.12" in said


def test_kakoune_edits_the_selections_and_undo_reverts_it(edited, tmp_path):
    script = CLIENTS / "kakoune" / "specchat.kak"
    saved = [tmp_path / "edited.py", tmp_path / "undone.py"]
    keys = (
        f"source {script}; execute-keys ggJx; specchat true; write {saved[0]}; execute-keys u; write {saved[1]}; quit!"
    )
    kakoune = Steps(lambda file, steps: [needs("kak"), "-n", "-ui", "dummy", "-e", *steps, file], *[""] * 7)

    edited(kakoune, keys)

    assert [path.read_text() for path in saved] == [NEW + TAIL, TEXT + TAIL]
