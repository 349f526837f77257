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
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=180).stdout


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


LINES = "".join(f"x{number} = {number}\n" for number in range(9))


@pytest.fixture
def long(repository):
    """A file of nine lines, in the last commit."""
    (repository / "a.py").write_text(LINES)
    git(repository, "commit", "-qam", "Lines")
    return repository / "a.py"


def test_other_changes_of_the_file_stay_uncommitted_and_staged_ones_staged(repository, long, monkeypatch):
    staged, dirty = LINES.replace("x0 = 0", "x0 = 11"), LINES.replace("x0 = 0", "x0 = 12")
    long.write_text(staged)
    git(repository, "add", "a.py")
    long.write_text(dirty)

    said = say(monkeypatch, [], str(long), "set x8 to 88", "-y", "--commit")

    assert 0 == said.ran.code, said.ran.err
    assert LINES.replace("= 8", "= 88") == git(repository, "show", "HEAD:a.py")
    assert staged.replace("= 8", "= 88") == git(repository, "show", ":a.py")
    assert dirty.replace("= 8", "= 88") == long.read_text()


def test_a_change_that_cannot_be_committed_alone_is_refused_before_it_is_written(repository, long, monkeypatch):
    dirty = LINES.replace("x8 = 8", "x8 = 77")
    (repository / "new.py").write_text(dirty)
    (repository / "same.py").write_text(LINES)
    git(repository, "add", "same.py")
    git(repository, "commit", "-qm", "Same")
    for name in ("same.py", "a.py"):
        (repository / name).write_text(dirty)
    head = git(repository, "rev-parse", "HEAD")
    cases = [("a.py", 88, "at the lines of this edit"), ("new.py", 88, "is new to git")]
    for name, value, why in [*cases, ("same.py", 8, "has this text already")]:
        said = say(monkeypatch, [], str(repository / name), f"set x8 to {value}", "-y", "--commit")

        assert (2, dirty) == (said.ran.code, (repository / name).read_text()), (name, said.ran.err)
        assert why in said.ran.err
    assert head == git(repository, "rev-parse", "HEAD")


def test_in_an_unfinished_merge_nothing_is_asked(repository, long, monkeypatch):
    (repository / ".git" / "MERGE_HEAD").write_text(git(repository, "rev-parse", "HEAD"))

    said = say(monkeypatch, [], str(long), "set x8 to 88", "-y", "--commit")

    assert (2, []) == (said.ran.code, said.asked)
    assert "a merge or the like is not finished" in said.ran.err


def test_line_ends_are_those_of_the_repository(repository, monkeypatch):
    (repository / ".gitattributes").write_text("*.py text eol=crlf\n")
    (repository / "a.py").write_bytes(b"x = 1\r\n")

    said = say(monkeypatch, answers("x = 2\n"), str(repository / "a.py"), "set x to 2", "-y", "--commit")

    assert 0 == said.ran.code, said.ran.err
    assert "x = 2\n" == git(repository, "show", "HEAD:a.py")
    assert " M" not in git(repository, "status", "--porcelain")


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
