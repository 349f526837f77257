"""Runs the user's check commands (--check) on a new text, in a temporary copy of the project.

The project is the git work tree of the file, or its folder. Files that git tracks or would track are copied, without
git the files of the folder itself. Everything else at the top level (caches, installed packages) becomes a symbolic
link. Links alone are not enough: a linked script imports its neighbours from the original folder.
"""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from specchat.context.file_listing import find_repository, git_files
from specchat.errors import BrokenEditError, UsageError

FILE_PLACEHOLDER = "{}"
MAX_DIAGNOSTIC_CHARS = 2000  # they become part of the next prompt
CHECK_TIMEOUT_SECONDS = 600.0
MAX_PROJECT_BYTES = 2 * 2**30


class FailedCheckError(BrokenEditError):
    """A check command failed; `diagnostics` is its output."""

    def __init__(self, message: str, diagnostics: str) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


def run_checks(commands: Sequence[str], path: Path, candidates: Mapping[Path, bytes]) -> None:
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
            _run_check(command, copy_root, path.relative_to(root))


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
    return [name for name in names if _is_file_or_link(root / name)]


def _is_file_or_link(path: Path) -> bool:
    """git also lists deleted files and submodules; skip those."""
    return path.is_symlink() or path.is_file()


def _run_check(command: str, copy_root: Path, file: Path) -> None:
    words = [str(file) if word == FILE_PLACEHOLDER else word for word in split_check_command(command)]
    try:
        ran = subprocess.run(
            words, cwd=copy_root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, timeout=CHECK_TIMEOUT_SECONDS,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"--check {command!r} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BrokenEditError(f"{file}: --check {command!r} took more than {CHECK_TIMEOUT_SECONDS:.0f} s") from None
    if ran.returncode:
        output = ran.stdout.decode(errors="replace").strip()[-MAX_DIAGNOSTIC_CHARS:] or "no output"
        last = output.splitlines()[-1]
        raise FailedCheckError(f"{file}: --check {command!r} ended with {ran.returncode}: {last}", output)


def split_check_command(command: str) -> list[str]:
    """Split a command line into words, without a shell. UsageError when it is not valid."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--check {command!r} is not a valid command: {error}") from None
    if not words:
        raise UsageError("--check needs a command, for example --check 'ruff check {}'")
    return words
