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
from specchat.host.spawn import file_lock, history_path

MAX_EDITS = 200
MAX_STORED_BYTES = 128 * 2**20
MAX_CANDIDATES = 20


@dataclass(frozen=True)
class StoredFile:
    """A file of an edit: its real path, and the hashes of what it held before and after; None where there was none."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class StoredEdit:
    """One edit. `undoes` is the number of the edit that it took back, 0 for an ordinary one."""

    number: int
    when: str
    instruction: str
    files: tuple[StoredFile, ...]
    is_undone: bool = False
    undoes: int = 0


class UndoStore:
    """All edits of this user, the oldest first."""

    def __init__(self, folder: Path) -> None:
        self._records_folder, self._blobs_folder = folder / "notes", folder / "images"
        for each in (self._records_folder, self._blobs_folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_path = folder / "lock"

    def lock(self) -> AbstractContextManager[None]:
        """Nobody else notes or applies an edit meanwhile."""
        return file_lock(self._lock_path)

    def add(self, instruction: str, replacements: Sequence[Replacement], undoes: int = 0) -> StoredEdit:
        """Note an edit that is about to be applied; call it `alone`."""
        edits = self.edits()
        files = tuple(
            StoredFile(str(each.target), self._store_blob(each.old), hash_or_none(each.new)) for each in replacements
        )
        number = 1 + max((edit.number for edit in edits), default=0)
        edit = StoredEdit(number, time.strftime("%Y-%m-%d %H:%M:%S"), instruction, files, undoes=undoes)
        self._write_record(edit)
        self._evict_oldest([*edits, edit])
        return edit

    def edits(self) -> list[StoredEdit]:
        """Every edit that can still be taken back, or was."""
        notes = (_read_record(path) for path in self._records_folder.glob("*.json"))
        return sorted((edit for edit in notes if edit), key=lambda edit: edit.number)

    def content_before(self, file: StoredFile) -> bytes | None:
        """What a file held before an edit, None when there was no file."""
        if file.before is None:
            return None
        try:
            return (self._blobs_folder / file.before).read_bytes()
        except OSError:
            raise UsageError(f"{file.path}: what it held before is no longer kept") from None

    def set_undone(self, edit: StoredEdit, *, is_undone: bool) -> None:
        """It was taken back, and the next `undo` goes on with the one before; or it holds again."""
        self._write_record(replace(edit, is_undone=is_undone))

    def remove(self, edit: StoredEdit) -> None:
        """It was not applied after all."""
        (self._records_folder / f"{edit.number}.json").unlink(missing_ok=True)

    def _store_blob(self, content: bytes | None) -> str | None:
        if content is None:
            return None
        name = content_hash(content)
        if not (self._blobs_folder / name).exists():
            _write_atomically(self._blobs_folder / name, content)
        return name

    def _write_record(self, edit: StoredEdit) -> None:
        _write_atomically(
            self._records_folder / f"{edit.number}.json", json.dumps(asdict(edit), ensure_ascii=False).encode()
        )

    def _evict_oldest(self, edits: Sequence[StoredEdit]) -> None:
        """Let go of the oldest, by number and by size; the newest stays in any case."""
        needed: set[str] = set()
        room = MAX_STORED_BYTES
        for age, edit in enumerate(reversed(edits)):
            images = {file.before for file in edit.files if file.before is not None} - needed
            room -= sum(self._blob_bytes(name) for name in images)
            if age and (age >= MAX_EDITS or room < 0):
                self.remove(edit)
            else:
                needed |= images
        for image in self._blobs_folder.iterdir():
            if image.name not in needed:
                image.unlink(missing_ok=True)

    def _blob_bytes(self, name: str) -> int:
        path = self._blobs_folder / name
        return path.stat().st_size if path.exists() else 0


def user_undo_store() -> UndoStore:
    """Those beside the history of this user."""
    return UndoStore(history_path().parent / "edits")


def save_candidate(name: str, content: bytes) -> Path:
    """Put a text that was not taken where a person can look at it; the few newest stay."""
    folder = history_path().parent / "edits" / "candidates"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{content_hash(content)[:8]}-{Path(name).name}"
    _write_atomically(path, content)
    for old in sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)[:-MAX_CANDIDATES]:
        old.unlink(missing_ok=True)
    return path


def content_hash(content: bytes) -> str:
    """The name of a content."""
    return sha256(content).hexdigest()


def hash_or_none(content: bytes | None) -> str | None:
    """The same as a `KeptFile` has it: None for no file."""
    return None if content is None else content_hash(content)


def _read_record(path: Path) -> StoredEdit | None:
    """A note; None for one that is no longer there, or not ours."""
    try:
        note: dict[str, Any] = json.loads(path.read_bytes())
        files = tuple(StoredFile(**file) for file in note.pop("files"))
        return StoredEdit(files=files, **note)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_atomically(path: Path, content: bytes) -> None:
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
