"""Runs the user's check commands (--check) on a new text, in a temporary copy of the project.

The project is the git work tree of the file, or its folder. Files that git tracks or would track are copied, without
git the files of the folder itself. Everything else at the top level (caches, installed packages) becomes a symbolic
link. Links alone are not enough: a linked script imports its neighbours from the original folder.

A command is a line for the shell, as people type it: `a && b`, `cd x; pytest` and `VAR=1 cmd` mean what they say.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event as Flag

from specchat.bounded_command import SHELL, CommandRun, run_bounded
from specchat.context.file_listing import find_repository, git_files
from specchat.errors import BrokenEditError, CancelledError, UsageError

# {} as a word or the value of an option, also in quotes, which the quoted name replaces
PLACEHOLDER = re.compile(r"""(?<![^\s;&|()<>=])(?:\{\}|"\{\}"|'\{\}')(?![^\s;&|()<>])""")
NOT_RUN_CODES = (126, 127)  # of a shell, for a program that is not there or not executable
MAX_DIAGNOSTIC_CHARS = 2000  # they become part of the next prompt
CHECK_TIMEOUT_SECONDS = 600.0
MAX_PROJECT_BYTES = 2 * 2**30


class FailedCheckError(BrokenEditError):
    """A check command failed; `diagnostics` is its output."""

    def __init__(self, message: str, diagnostics: str) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


def run_checks(
    commands: Sequence[str], path: Path, candidates: Mapping[Path, bytes], cancelled: Flag | None = None
) -> None:
    """Run each command; `{}` stands for the file at `path`. BrokenEditError when one fails."""
    if not commands:
        return
    root = find_repository(path.parent) or path.parent
    with TemporaryDirectory(prefix="specchat-check-") as folder:
        copy_root = Path(folder) / root.name
        new = {file.relative_to(root): raw for file, raw in candidates.items() if file.is_relative_to(root)}
        copy_project(root, copy_root, list(new))
        for name, raw in new.items():
            (copy_root / name).write_bytes(raw)
        for command in commands:
            _run_check(command, copy_root, path.relative_to(root), cancelled or Flag())


def copy_project(root: Path, copy_root: Path, extra_files: Sequence[Path]) -> None:
    """Copy the project; `extra_files` are copied even when git ignores them, so that none of them is a link.

    UsageError when the project is too large for a copy.
    """
    names = list(dict.fromkeys([*_files_to_copy(root), *extra_files]))
    size = sum((root / name).lstat().st_size for name in names)
    if size > MAX_PROJECT_BYTES:
        raise UsageError(f"--check copies the project, and {root} holds {size / 2**30:.1f} GiB; leave --check out")
    for name in names:
        (copy_root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy_root / name, follow_symlinks=False)
    copy_root.mkdir(exist_ok=True)
    copied = {name.parts[0] for name in names}
    for original in root.iterdir():
        if original.name not in copied and original.name != ".git":
            (copy_root / original.name).symlink_to(original.absolute())


def _files_to_copy(root: Path) -> list[Path]:
    tracked = [Path(name) for name in dict.fromkeys(git_files(root))] if (root / ".git").exists() else []
    names = tracked or [each.relative_to(root) for each in root.iterdir()]
    # git also lists deleted files and submodules
    return [name for name in names if (root / name).is_symlink() or (root / name).is_file()]


def _run_check(command: str, copy_root: Path, file: Path, cancelled: Flag) -> None:
    words = (*SHELL, PLACEHOLDER.sub(lambda _match: _quoted(str(file)), command))
    ran = run_bounded(CommandRun(words, copy_root, CHECK_TIMEOUT_SECONDS, MAX_DIAGNOSTIC_CHARS), cancelled)
    output = ran.output.strip()[-MAX_DIAGNOSTIC_CHARS:] or "no output"
    last = output.splitlines()[-1]
    if cancelled.is_set():
        raise CancelledError("stopped; nothing is written")
    if ran.exit_code is None:
        raise BrokenEditError(f"{file}: --check {command!r} took more than {CHECK_TIMEOUT_SECONDS:.0f} s")
    if ran.exit_code in NOT_RUN_CODES:
        raise UsageError(f"--check {command!r} cannot be run: {last}")
    if ran.exit_code:
        raise FailedCheckError(f"{file}: --check {command!r} ended with {ran.exit_code}: {last}", output)


def _quoted(name: str) -> str:
    return subprocess.list2cmdline([name]) if os.name == "nt" else shlex.quote(name)


def verify_command(command: str) -> None:
    """UsageError for a command that the shell cannot read; nothing of it runs."""
    if not command.strip():
        raise UsageError("--check needs a command, for example --check 'ruff check {}'")
    if os.name == "nt":  # its shell reads a command only by running it
        return
    read = subprocess.run(
        [SHELL[0], "-n", *SHELL[1:], command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if read.returncode:
        raise UsageError(f"--check {command!r} is not a valid command: {read.stderr.decode(errors='replace').strip()}")
