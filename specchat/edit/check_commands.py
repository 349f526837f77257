"""Try a new text where nothing can come of it: in a copy of the project.

The project is the git work tree of the file, or its folder. Copied are the files that git knows or would take, or those
of the folder itself; what else stands at the top (caches, installed packages, subfolders without git) is a link to the
original. Links alone would not do: a script that is a link looks for its neighbours beside the original.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from specchat.errors import BrokenEditError, UsageError

FILE_PLACEHOLDER = "{}"
MAX_DIAGNOSTIC_CHARS = 2000  # of diagnostics: the model has to read them
CHECK_TIMEOUT_SECONDS = 600.0
MAX_PROJECT_BYTES = 2 * 2**30


class FailedCheckError(BrokenEditError):
    """A check said no; `diagnostics` is all that it said."""

    def __init__(self, message: str, diagnostics: str) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


def run_checks(commands: Sequence[str], path: Path, candidates: Mapping[Path, bytes]) -> None:
    """Run each command; `{}` stands for the file at `path`. BrokenEditError, with what it said, when one fails."""
    if not commands:
        return
    root = project_root(path)
    with TemporaryDirectory(prefix="specchat-check-") as folder:
        scratch = Path(folder) / root.name
        new = {file.relative_to(root): raw for file, raw in candidates.items() if file.is_relative_to(root)}
        copy_project(root, scratch, list(new))
        for name, raw in new.items():
            (scratch / name).write_bytes(raw)
        for command in commands:
            _run_check(command, scratch, path.relative_to(root))


def project_root(path: Path) -> Path:
    """The nearest folder above that git knows, else the folder of the file."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), path.parent)


def copy_project(root: Path, copy_root: Path, extra_files: Sequence[Path]) -> None:
    """The project under another name; `needed` files are copied even when git ignores them, so that none is a link.

    UsageError when it is too large to be copied for a check.
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
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (root / ".git").exists():
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            said = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
            names = [Path(os.fsdecode(name)) for name in said.split(b"\0") if name]
            return [name for name in dict.fromkeys(names) if _is_file_or_link(root / name)]
    return [each.relative_to(root) for each in root.iterdir() if _is_file_or_link(each)]


def _is_file_or_link(path: Path) -> bool:
    """A file or a link: what git lists may be gone, or a project of its own."""
    return path.is_symlink() or path.is_file()


def _run_check(command: str, copy_root: Path, file: Path) -> None:
    words = [str(file) if word == FILE_PLACEHOLDER else word for word in split_check_command(command)]
    try:
        ran = subprocess.run(
            words, cwd=copy_root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=CHECK_TIMEOUT_SECONDS,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"--check {command!r} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BrokenEditError(f"{file}: --check {command!r} took more than {CHECK_TIMEOUT_SECONDS:.0f} s") from None
    if ran.returncode:
        said = ran.stdout.decode(errors="replace").strip()[-MAX_DIAGNOSTIC_CHARS:] or "it said nothing"
        last = said.splitlines()[-1]
        raise FailedCheckError(f"{file}: --check {command!r} ended with {ran.returncode}: {last}", said)


def split_check_command(command: str) -> list[str]:
    """A command line as words; no shell is involved. UsageError when it is none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--check {command!r} is no command: {error}") from None
    if not words:
        raise UsageError("--check needs a command, for example --check 'ruff check {}'")
    return words
