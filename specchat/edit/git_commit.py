"""Commits exactly the edited files, with the instruction as the message."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from specchat.errors import SpecchatError, UsageError

MAX_SUBJECT_CHARS = 72


def check_repository(paths: Sequence[Path]) -> None:
    """UsageError unless every file lies in a git work tree."""
    for path in paths:
        if _run_git(path.resolve().parent, "rev-parse", "--is-inside-work-tree").stdout.strip() != "true":
            raise UsageError(f"{path}: not in a git repository; leave --commit out")


def has_other_changes(path: Path) -> bool:
    """Whether the file has uncommitted changes, which a commit would include."""
    file = path.resolve()
    return bool(_run_git(file.parent, "status", "--porcelain", "--", file.name).stdout.strip())


def commit_files(paths: Sequence[Path], instruction: str) -> str:
    """Commit these files only, whatever is staged; return the short hash. SpecchatError with git's message."""
    files = [str(path.resolve()) for path in paths]
    folder = paths[0].resolve().parent
    subject = " ".join(instruction.split())
    subject = subject if len(subject) <= MAX_SUBJECT_CHARS else f"{subject[: MAX_SUBJECT_CHARS - 1]}…"
    for words in (("add", "--", *files), ("commit", "--quiet", "--only", "-m", subject, "--", *files)):
        ran = _run_git(folder, *words)
        if ran.returncode:
            message = (ran.stderr.strip() or ran.stdout.strip() or "no message from git").splitlines()[-1]
            raise SpecchatError(f"the files are written but not committed: {message}")
    return _run_git(folder, "rev-parse", "--short", "HEAD").stdout.strip()


def _run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        command, null = ["git", *arguments], subprocess.DEVNULL
        return subprocess.run(command, cwd=folder, stdin=null, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError("git is not installed; leave --commit out") from None
