"""What files held before they were edited: content by its hash, and one note for each edit. Old ones give way.

    edits/notes/7.json    which files, before and after, when, and what was asked
    edits/images/ab…      a content under its SHA-256

A note is written before the files are, so nothing is ever replaced that could not be put back.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from specchat.edit.atomic_write import Replacement
from specchat.errors import UsageError
from specchat.host.spawn import history_path, locked

MOST_EDITS = 200
MOST_BYTES = 128 * 2**20
MOST_CANDIDATES = 20


@dataclass(frozen=True)
class KeptFile:
    """A file of an edit: its real path, and the hashes of what it held before and after; None where there was none."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class KeptEdit:
    """One edit. `undoes` is the number of the edit that it took back, 0 for an ordinary one."""

    number: int
    when: str
    instruction: str
    files: tuple[KeptFile, ...]
    is_undone: bool = False
    undoes: int = 0


class Kept:
    """All edits of this user, the oldest first."""

    def __init__(self, folder: Path) -> None:
        self._notes, self._images = folder / "notes", folder / "images"
        for each in (self._notes, self._images):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = folder / "lock"

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else notes or applies an edit meanwhile."""
        return locked(self._lock)

    def add(self, instruction: str, replacements: Sequence[Replacement], undoes: int = 0) -> KeptEdit:
        """Note an edit that is about to be applied; call it `alone`."""
        edits = self.edits()
        files = tuple(KeptFile(str(each.target), self._keep(each.old), state_of(each.new)) for each in replacements)
        number = 1 + max((edit.number for edit in edits), default=0)
        edit = KeptEdit(number, time.strftime("%Y-%m-%d %H:%M:%S"), instruction, files, undoes=undoes)
        self._note(edit)
        self._forget([*edits, edit])
        return edit

    def edits(self) -> list[KeptEdit]:
        """Every edit that can still be taken back, or was."""
        notes = (_read(path) for path in self._notes.glob("*.json"))
        return sorted((edit for edit in notes if edit), key=lambda edit: edit.number)

    def before(self, file: KeptFile) -> bytes | None:
        """What a file held before an edit, None when there was no file."""
        if file.before is None:
            return None
        try:
            return (self._images / file.before).read_bytes()
        except OSError:
            raise UsageError(f"{file.path}: what it held before is no longer kept") from None

    def mark(self, edit: KeptEdit, *, is_undone: bool) -> None:
        """It was taken back, and the next `undo` goes on with the one before; or it holds again."""
        self._note(replace(edit, is_undone=is_undone))

    def drop(self, edit: KeptEdit) -> None:
        """It was not applied after all."""
        (self._notes / f"{edit.number}.json").unlink(missing_ok=True)

    def _keep(self, content: bytes | None) -> str | None:
        if content is None:
            return None
        name = digest(content)
        if not (self._images / name).exists():
            _put(self._images / name, content)
        return name

    def _note(self, edit: KeptEdit) -> None:
        _put(self._notes / f"{edit.number}.json", json.dumps(asdict(edit), ensure_ascii=False).encode())

    def _forget(self, edits: Sequence[KeptEdit]) -> None:
        """Let go of the oldest, by number and by size; the newest stays in any case."""
        needed: set[str] = set()
        room = MOST_BYTES
        for age, edit in enumerate(reversed(edits)):
            images = {file.before for file in edit.files if file.before is not None} - needed
            room -= sum(self._size(name) for name in images)
            if age and (age >= MOST_EDITS or room < 0):
                self.drop(edit)
            else:
                needed |= images
        for image in self._images.iterdir():
            if image.name not in needed:
                image.unlink(missing_ok=True)

    def _size(self, name: str) -> int:
        path = self._images / name
        return path.stat().st_size if path.exists() else 0


def kept_edits() -> Kept:
    """Those beside the history of this user."""
    return Kept(history_path().parent / "edits")


def keep_candidate(name: str, content: bytes) -> Path:
    """Put a text that was not taken where a person can look at it; the few newest stay."""
    folder = history_path().parent / "edits" / "candidates"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{digest(content)[:8]}-{Path(name).name}"
    _put(path, content)
    for old in sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)[:-MOST_CANDIDATES]:
        old.unlink(missing_ok=True)
    return path


def digest(content: bytes) -> str:
    """The name of a content."""
    return sha256(content).hexdigest()


def state_of(content: bytes | None) -> str | None:
    """The same as a `KeptFile` has it: None for no file."""
    return None if content is None else digest(content)


def _read(path: Path) -> KeptEdit | None:
    """A note; None for one that is no longer there, or not ours."""
    try:
        note: dict[str, Any] = json.loads(path.read_bytes())
        files = tuple(KeptFile(**file) for file in note.pop("files"))
        return KeptEdit(files=files, **note)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _put(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
