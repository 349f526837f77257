"""git in a hostile folder: nothing that its configuration names is started."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import specchat
from specchat.cli.edit_commit import check_repository, commit_files, has_other_changes
from specchat.context.file_listing import list_folder
from specchat.edit.check_commands import run_checks
from specchat.git_command import run_git

HOOKS = ("pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction", "prepare-commit-msg")


@pytest.fixture
def traces(tmp_path) -> Path:
    """The folder where each program that the repository starts leaves a file with its name."""
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def repository(tmp_path, traces, monkeypatch) -> Path:
    """A repository whose configuration and hooks start programs."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "Begin")):
        subprocess.run(["git", *words], cwd=root, check=True, timeout=20)
    for hook in HOOKS:
        write_program(root / ".git" / "hooks" / hook, traces / hook)
    for key in ("core.fsmonitor", "core.pager", "core.editor"):
        program = write_program(tmp_path / key, traces / key)
        subprocess.run(["git", "config", key, str(program)], cwd=root, check=True, timeout=20)
    for trace in traces.iterdir():
        trace.unlink()
    return root


def write_program(path: Path, trace: Path) -> Path:
    path.write_text(f"#!/bin/sh\ntouch {trace}\n")
    path.chmod(0o755)
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_check_and_the_list_of_files_start_nothing_of_the_repository(repository, traces):
    run_checks(["true"], repository / "a.py", {repository / "a.py": b"x = 2\n"})
    assert [repository / "a.py"] == list(list_folder(repository).files)

    assert names(traces) == set()


def test_a_commit_runs_its_hooks_and_nothing_else(repository, traces):
    (repository / "a.py").write_text("x = 2\n")
    check_repository([repository / "a.py"])
    assert has_other_changes(repository / "a.py")
    assert names(traces) == set()

    commit_files([repository / "a.py"], "Set x")

    assert {"pre-commit", "commit-msg", "post-commit"} <= names(traces) <= set(HOOKS)


def test_a_name_with_magic_of_git_is_a_name(repository):
    for name in ("*.py", ":(top)x.py"):
        (repository / name).write_text("y = 1\n")
    commit_files([repository / "*.py", repository / ":(top)x.py"], "Add y")

    shown = run_git(repository, "show", "--name-only", "--format=", "-z", "HEAD").stdout
    assert sorted(filter(None, shown.split(b"\0"))) == [b"*.py", b":(top)x.py"]


def test_variables_of_a_hook_do_not_move_git_to_another_repository(repository, tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))

    assert run_git(repository, "rev-parse", "--show-toplevel").stdout.decode().strip() == str(repository)


def test_no_other_code_starts_git():
    package = Path(specchat.__file__).parent
    starting = [
        path.name
        for path in package.rglob("*.py")
        if '"git"' in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value == "git"
    ]

    assert starting == ["git_command.py"]
