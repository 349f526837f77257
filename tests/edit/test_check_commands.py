"""Checks run on the new text in a copy; the project itself does not change."""

from __future__ import annotations

import subprocess
import sys
from threading import Event as Flag

import pytest

from specchat.edit.check_commands import FailedCheckError, run_checks, verify_command
from specchat.errors import CancelledError, UsageError
from tests.processes import is_gone, set_when_written


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, timeout=180)
    (root / "package" / "deep").mkdir(parents=True)
    (root / "package" / "a.py").write_text("x = 1\n")
    (root / ".gitignore").write_text("installed/\n")
    (root / "installed").mkdir()
    (root / "installed" / "tool").write_text("a tool\n")
    (root / "package" / "other.py").write_text("y = 1\n")
    (root / "package" / "deep" / "b.py").write_text("z = 1\n")
    (root / "tests.py").write_text("from package.a import x\nfrom package.other import y\nassert x == 2 and y == 1\n")
    return root


def test_a_check_sees_the_new_text_among_its_neighbours(project):
    file = project / "package" / "a.py"

    run_checks([f"{sys.executable} -B tests.py"], file, {file: b"x = 2\n"})

    assert "x = 1\n" == file.read_text()
    with pytest.raises(FailedCheckError, match="AssertionError"):
        run_checks([f"{sys.executable} -B tests.py"], file, {file: b"x = 3\n"})


def test_braces_are_the_file_and_other_edited_files_are_new_too(project):
    file, other = project / "package" / "a.py", project / "package" / "deep" / "b.py"

    run_checks(["grep -q 2 {}", "grep -q 3 package/deep/b.py"], file, {file: b"2\n", other: b"3\n"})

    with pytest.raises(FailedCheckError):
        run_checks(["grep -q 3 {}"], file, {file: b"2\n", other: b"3\n"})


def test_a_failed_check_has_its_output_as_diagnostics_and_the_last_line_as_message(project):
    file = project / "package" / "a.py"
    with pytest.raises(FailedCheckError, match=r"ended with 3: last$") as caught:
        run_checks(["sh -c 'echo first; echo last; exit 3'"], file, {file: b""})

    assert "first\nlast" == caught.value.diagnostics


def verify_and_run(command, file):
    verify_command(command)
    run_checks([command], file, {file: b""})


def test_a_command_means_what_a_shell_makes_of_it(project):
    file = project / "package" / "a.py"
    passing = ["true && true", "cd package; grep -q 2 a.py", "LANG=C x=2; test $x = 2", "false || true", "! false"]
    passing += ['test -f "{}" && test -f {} && test "$(cat {})" = "x = 2"', "echo {} | grep -q a.py"]
    failing = ["false && true", "true; false", "grep -q 3 {} || exit 4"]

    run_checks(passing, file, {file: b"x = 2\n"})
    for command in failing:
        with pytest.raises(FailedCheckError):
            run_checks([command], file, {file: b"x = 2\n"})


def test_a_name_is_one_word_of_the_command(project):
    file = project / "package" / "it's; touch a $(b).py"
    file.write_text("old\n")

    run_checks(['grep -q new {} && grep -q new "{}"'], file, {file: b"new\n"})


@pytest.mark.parametrize("command", ["no-such-program {}", "'unclosed", "a && && b", " "])
def test_a_command_that_is_none_is_a_usage_error(project, command):
    file = project / "package" / "a.py"

    with pytest.raises(UsageError, match=r"\A--check.*\Z"):
        verify_and_run(command, file)


def test_what_a_command_started_ends_with_it_when_the_user_stops(project):
    file, cancelled = project / "package" / "a.py", Flag()
    set_when_written(cancelled, project / "child")

    with pytest.raises(CancelledError):
        run_checks([f"sh -c 'echo $$ > {project}/child; exec sleep 60'; true"], file, {file: b""}, cancelled)

    assert is_gone(project / "child")


def test_without_git_the_folder_of_the_file_is_the_project(tmp_path):
    (tmp_path / "a.py").write_text("")
    (tmp_path / "beside").write_text("here")

    run_checks(["grep -q here beside"], tmp_path / "a.py", {tmp_path / "a.py": b""})


def test_what_git_ignores_is_there_too_and_what_a_check_writes_is_not(project):
    file = project / "package" / "a.py"

    run_checks(["grep -q tool installed/tool", "sh -c 'echo bad > package/other.py'"], file, {file: b""})

    assert "y = 1\n" == (project / "package" / "other.py").read_text()


def test_an_edited_file_that_git_ignores_is_checked(project):
    file = project / "installed" / "tool"

    run_checks(["grep -q new {}"], file, {file: b"new"})

    assert "a tool\n" == file.read_text()
