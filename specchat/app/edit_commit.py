"""Commits what one edit changed and nothing else, with the instruction as the message.

Everything is decided before a file is written, so a refusal changes nothing. A file of the commit is that of the last
commit with the change of this edit; where it had other changes, staged or not, the two are merged, or refused where
they meet. The commit is made from a copy of the index: what is staged stays staged.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from specchat.edit.atomic_write import Replacement
from specchat.errors import SpecchatError, UsageError, last_output_line
from specchat.git_command import folder_programs, run_git

MAX_SUBJECT_CHARS = 72
LEAVE_OUT = "leave --commit out"
UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")


@dataclass(frozen=True)
class Entry:
    """A file in a commit or in the index: its mode, and what git calls its content."""

    mode: str
    blob: str


@dataclass(frozen=True)
class TrackedFile:
    """A file as the last commit and the index have it."""

    root: Path
    name: str  # below the root
    committed: Entry
    staged: Entry


@dataclass(frozen=True)
class PlannedCommit:
    """The files of the commit by name, and those that had staged changes as the index has them after it."""

    root: Path
    subject: str
    committed: dict[str, Entry]
    staged: dict[str, Entry]

    def make(self) -> str:
        """Commit, when the files are written; returns the short hash. SpecchatError with git's message."""
        failure = "the files are written but not committed"
        with TemporaryDirectory(prefix="specchat-commit-") as folder:
            index = Path(folder) / "index"
            shutil.copyfile(self.root / _git(self.root, "rev-parse", "--git-path", "index"), index)
            _git(self.root, "read-tree", "--reset", "HEAD", index=index, failure=failure)
            _git(self.root, "update-index", *_entries(self.committed), index=index, failure=failure)
            commit = ("commit", "--quiet", "-m", self.subject)
            _git(self.root, *commit, index=index, runs_hooks=True, failure=failure)
        number = _git(self.root, "rev-parse", "--short", "HEAD")
        failure = f"the files are written and committed as {number}, but not in the index"
        if taken := [name for name in self.committed if name not in self.staged]:
            _git(self.root, "reset", "--", *taken, failure=failure)
        if self.staged:
            _git(self.root, "update-index", *_entries(self.staged), failure=failure)
        return number


def tracked_files(paths: Sequence[Path]) -> list[TrackedFile]:
    """The files in their repository. UsageError where the change of an edit cannot be committed alone."""
    files = [_tracked_file(path.resolve(), path) for path in paths]
    root = files[0].root
    if any(each.root != root for each in files):
        raise UsageError(f"these files are of several git repositories; {LEAVE_OUT}")
    names = [word for each in UNFINISHED for word in ("--git-path", each)]
    if any((root / name).exists() for name in _git(root, "rev-parse", *names).splitlines()):
        raise UsageError(f"{root}: a merge or the like is not finished; finish it first, or {LEAVE_OUT}")
    _check_programs(files)
    return files


def plan_commit(replacements: Sequence[Replacement], instruction: str) -> PlannedCommit:
    """What a commit of these changes has. UsageError where it would have other changes, too, or none."""
    committed, staged = dict[str, Entry](), dict[str, Entry]()
    files = tracked_files([each.path for each in replacements])
    for change, file in zip(replacements, files, strict=True):
        old, new = (_store(file, content or b"") for content in (change.old, change.new))
        committed[file.name] = _with_change(file, file.committed, old, new)
        if file.staged != file.committed:
            staged[file.name] = _with_change(file, file.staged, old, new)
        if committed[file.name] == file.committed:
            raise UsageError(f"{change.path}: the last commit has this text already; nothing is written; {LEAVE_OUT}")
    subject = " ".join(instruction.split())
    subject = subject if len(subject) <= MAX_SUBJECT_CHARS else f"{subject[: MAX_SUBJECT_CHARS - 1]}…"
    return PlannedCommit(files[0].root, subject, committed, staged)


def _tracked_file(path: Path, shown: Path) -> TrackedFile:
    try:
        root = Path(_git(path.parent, "rev-parse", "--show-toplevel")).resolve()
    except SpecchatError as error:
        raise UsageError(f"{shown}: {error}; {LEAVE_OUT}") from None
    if not path.is_relative_to(root):
        raise UsageError(f"{shown}: the git repository around it has its files in {root}; {LEAVE_OUT}")
    name = path.relative_to(root).as_posix()
    committed = os.fsdecode(run_git(root, "ls-tree", "-z", "HEAD", "--", name).stdout).split()  # none without a commit
    staged = _git(root, "ls-files", "-z", "--stage", "--", name).partition("\t")[0].split()
    if not committed or len(staged) != 3 or staged[2] != "0":
        raise UsageError(f"{shown}: is new to git, or in a merge; commit it first, or {LEAVE_OUT}")
    return TrackedFile(root, name, Entry(committed[0], committed[2]), Entry(staged[0], staged[1]))


def _check_programs(files: Sequence[TrackedFile]) -> None:
    """UsageError where the commit needs a program that the repository names. An unpacked archive could name any."""
    root, programs = files[0].root, folder_programs(files[0].root)
    signs = run_git(root, "config", "--bool", "commit.gpgSign").stdout.strip() == b"true"
    filters = {_git(root, "check-attr", "-z", "filter", "--", each.name).split("\0")[2] for each in files}
    for key, program in programs.items():
        name = key.partition(".")[2].rpartition(".")[0]
        if (key.startswith("filter.") and name in filters) or (key.startswith("gpg.") and signs):
            raise UsageError(f"{root}: its own git configuration would start {program!r} ({key}); {LEAVE_OUT}")


def _store(file: TrackedFile, content: bytes) -> str:
    """The name of a content that git stores, with the line ends and filters of the user's own configuration."""
    return _git(file.root, "hash-object", "-w", "--stdin", f"--path={file.name}", content=content)


def _with_change(file: TrackedFile, own: Entry, old: str, new: str) -> Entry:
    """The entry with the change from `old` to `new`; UsageError where that meets a change of its own."""
    if own.blob == old:
        return Entry(own.mode, new)
    with TemporaryDirectory(prefix="specchat-merge-") as folder:
        paths = [Path(folder) / name for name in ("own", "old", "new")]
        for path, blob in zip(paths, (own.blob, old, new), strict=True):
            path.write_bytes(run_git(file.root, "cat-file", "blob", blob).stdout)
        merged = run_git(file.root, "merge-file", "--stdout", "--quiet", *map(str, paths))
    if merged.returncode:
        raise UsageError(
            f"{file.name}: has uncommitted changes at the lines of this edit; nothing is written; commit them first, "
            f"or {LEAVE_OUT}"
        )
    return Entry(own.mode, _git(file.root, "hash-object", "-w", "--stdin", content=merged.stdout))


def _entries(files: dict[str, Entry]) -> list[str]:
    words = (("--cacheinfo", f"{entry.mode},{entry.blob},{name}") for name, entry in files.items())
    return [each for pair in words for each in pair]


def _git(
    folder: Path, *arguments: str, failure: str = "", content: bytes = b"", index: Path | None = None,
    runs_hooks: bool = False,
) -> str:  # fmt: skip
    """The output; `failure` stands before git's message in an error."""
    prefix = f"{failure}: " if failure else ""
    try:
        ran = run_git(folder, *arguments, content=content, index=index, runs_hooks=runs_hooks)
    except FileNotFoundError:
        raise UsageError("git is not installed") from None
    except OSError as error:
        raise UsageError(str(error)) from None
    except subprocess.TimeoutExpired as error:
        raise SpecchatError(f"{prefix}git {arguments[0]} took more than {error.timeout:.0f} s") from None
    if ran.returncode:
        raise SpecchatError(prefix + last_output_line(os.fsdecode(ran.stderr or ran.stdout), "no message from git"))
    return os.fsdecode(ran.stdout).strip()
