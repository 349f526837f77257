"""git in a hostile folder: nothing that its configuration names is started."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import specchat
from specchat.app.edit_commit import plan_commit, tracked_files
from specchat.context.file_listing import list_folder
from specchat.edit.atomic_write import Replacement
from specchat.edit.check_commands import run_checks
from specchat.errors import SpecchatError, UsageError
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
        subprocess.run(["git", *words], cwd=root, check=True, timeout=180)
    for hook in HOOKS:
        write_program(root / ".git" / "hooks" / hook, traces / hook)
    for key in ("core.fsmonitor", "core.pager", "core.editor"):
        program = write_program(tmp_path / key, traces / key)
        subprocess.run(["git", "config", key, str(program)], cwd=root, check=True, timeout=180)
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


def commit(path: Path, new: bytes) -> None:
    planned = plan_commit([Replacement(path, path.read_bytes(), new)], "Change it")
    path.write_bytes(new)
    planned.make()


def test_a_commit_runs_its_hooks_and_nothing_else(repository, traces):
    tracked_files([repository / "a.py"])
    assert names(traces) == set()

    commit(repository / "a.py", b"x = 2\n")

    assert {"pre-commit", "commit-msg", "post-commit"} <= names(traces) <= set(HOOKS)


@pytest.mark.dear
@pytest.mark.parametrize("key", ["filter.own.clean", "filter.own.process", "gpg.program", "gpg.ssh.program"])
def test_filters_and_signers_of_the_repository_are_named_and_do_not_run(repository, traces, tmp_path, key):
    program = write_program(tmp_path / "evil", traces / "evil")
    values = {key: str(program), "filter.own.required": "true", "gpg.format": "ssh" if "ssh" in key else "openpgp"}
    values |= {"user.signingKey": "x", "commit.gpgSign": str(key.startswith("gpg")).lower()}
    (repository / "other.txt").write_text("text\n")
    run_git(repository, "add", "other.txt")
    run_git(repository, "commit", "-qm", "Other")
    for name, value in values.items():
        subprocess.run(["git", "config", name, value], cwd=repository, check=True, timeout=180)
    for pattern in ("*.txt", "*"):  # first only the file beside the edited one
        (repository / ".gitattributes").write_text(f"{pattern} filter=own\n")
        (repository / "other.txt").write_text("changed, so that git reads it\n")
        if pattern == "*" or key.startswith("gpg"):
            with pytest.raises(UsageError, match=f"would start .*{key}"):
                plan_commit([Replacement(repository / "a.py", b"x = 1\n", b"x = 2\n")], "Set x")
        else:
            commit(repository / "a.py", b"x = 2\n")
    run_git(repository, "status", "--porcelain")
    run_git(repository, "add", ".")
    assert "evil" not in names(traces)


def test_a_key_that_cannot_be_set_aside_stops_git(repository):
    subprocess.run(["git", "config", "filter.a=b.clean", "evil"], cwd=repository, check=True, timeout=180)

    with pytest.raises(SpecchatError, match="has the key"):
        tracked_files([repository / "a.py"])


def test_a_name_with_magic_of_git_is_a_name(repository):
    odd = [repository / "*.py", repository / ":(top)x.py"]
    for path in odd:
        path.write_text("y = 1\n")
    run_git(repository, "add", "--", *(path.name for path in odd))
    run_git(repository, "commit", "-qm", "Odd")
    changes = [Replacement(path, b"y = 1\n", b"y = 2\n") for path in odd]
    planned = plan_commit(changes, "Set y")
    planned.make()

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
