"""Commits exactly the edited files, with the instruction as the message."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from specchat.errors import SpecchatError, UsageError
from specchat.git_command import run_git, run_git_with_hooks

MAX_SUBJECT_CHARS = 72

GitRunner = Callable[..., subprocess.CompletedProcess[bytes]]


def check_repository(paths: Sequence[Path]) -> None:
    """UsageError unless every file lies in a git work tree."""
    for path in paths:
        if _output(run_git, path.resolve().parent, "rev-parse", "--is-inside-work-tree") != "true":
            raise UsageError(f"{path}: not in a git repository; leave --commit out")


def has_other_changes(path: Path) -> bool:
    """Whether the file has uncommitted changes, which a commit would include."""
    file = path.resolve()
    return bool(_output(run_git, file.parent, "status", "--porcelain", "--ignore-submodules=all", "--", file.name))


def commit_files(paths: Sequence[Path], instruction: str) -> str:
    """Commit these files only, whatever is staged; return the short hash. SpecchatError with git's message."""
    files = [str(path.resolve()) for path in paths]
    folder = paths[0].resolve().parent
    subject = " ".join(instruction.split())
    subject = subject if len(subject) <= MAX_SUBJECT_CHARS else f"{subject[: MAX_SUBJECT_CHARS - 1]}…"
    commit = ("commit", "--quiet", "--only", "-m", subject, "--", *files)
    for run, words in ((run_git, ("add", "--", *files)), (run_git_with_hooks, commit)):
        ran = _run(run, folder, *words)
        if ran.returncode:
            message = _text(ran.stderr) or _text(ran.stdout) or "no message from git"
            raise SpecchatError(f"the files are written but not committed: {message.splitlines()[-1]}")
    return _output(run_git, folder, "rev-parse", "--short", "HEAD")


def _output(run: GitRunner, folder: Path, *arguments: str) -> str:
    return _text(_run(run, folder, *arguments).stdout)


def _run(run: GitRunner, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return run(folder, *arguments)
    except FileNotFoundError:
        raise UsageError("git is not installed; leave --commit out") from None
    except subprocess.TimeoutExpired as error:
        raise SpecchatError(
            f"git {arguments[0]} took more than {error.timeout:.0f} s; the files are not committed"
        ) from None


def _text(output: bytes) -> str:
    return output.decode(errors="replace").strip()
