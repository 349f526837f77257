"""`--commit` commits the edited files and nothing else; without it git does not change."""

from __future__ import annotations

import subprocess

import pytest

from tests.edit.scripted import answers, say

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(tmp_path, "init", "-q")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    return tmp_path


def git(folder, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=20).stdout


def test_an_edit_is_not_committed_without_the_option(repository, monkeypatch):
    say(monkeypatch, answers("x = 2\n"), str(repository / "a.py"), "set x", "-y")

    assert " M a.py\n" == git(repository, "status", "--porcelain")


def test_a_commit_holds_the_edited_file_alone_with_the_instruction_as_message(repository, monkeypatch):
    (repository / "b.py").write_text("x = 3\n")
    git(repository, "add", "b.py")

    said = say(monkeypatch, answers("x = 2\n"), str(repository / "a.py"), "set x to two", "-y", "--commit")

    assert 0 == said.ran.code
    assert "set x to two\n\na.py\n" == git(repository, "log", "-1", "--name-only", "--format=%s")
    assert "M  b.py\n" == git(repository, "status", "--porcelain")
    assert said.ran.err.rstrip().endswith(f"commit {git(repository, 'rev-parse', '--short', 'HEAD').strip()}")


def test_earlier_uncommitted_changes_are_reported(repository, monkeypatch):
    (repository / "a.py").write_text("x = 5\n")

    said = say(monkeypatch, answers("x = 2\n"), str(repository / "a.py"), "set x", "-y", "--commit")

    assert "had uncommitted changes" in said.ran.err


def test_where_git_is_not_there_is_nothing_to_commit_to(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "a.py").write_text("x = 1\n")

    said = say(monkeypatch, [], str(tmp_path / "a.py"), "set x", "-y", "--commit")

    assert (2, [], "x = 1\n") == (said.ran.code, said.asked, (tmp_path / "a.py").read_text())


def test_a_failing_hook_is_reported_and_the_file_stays_written(repository, monkeypatch):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho not like this >&2\nexit 1\n")
    hook.chmod(0o755)

    said = say(monkeypatch, answers("x = 2\n"), str(repository / "a.py"), "set x", "-y", "--commit")

    assert (1, "x = 2\n") == (said.ran.code, (repository / "a.py").read_text())
    assert "written but not committed: not like this" in said.ran.err
