"""Applies edits so that they can be undone, and undoes them. Needs no git.

Contents are stored by hash, one JSON record per edit; the oldest are evicted.

    edits/notes/7.json    files with the hashes before and after, time and instruction
    edits/images/ab…      a content under its SHA-256

The record is written before the files are, so every replaced content can be restored. It is pending until all files are
written: the next process finds the record of a killed one, and either all files have their new content, or they get the
old one back. An undo is an edit like any
other: what it overwrites is stored, and its own number undoes it. Undoing an edit that created a file removes the file.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from specchat.edit.atomic_write import Replacement, read_content, remove_temporaries, write_files
from specchat.errors import FileChangedError, NoChangeError, SpecchatError, UsageError
from specchat.host.spawn import file_lock, history_path
from specchat.paths import write_atomically

MAX_EDITS = 200
MAX_STORED_BYTES = 128 * 2**20
MAX_CANDIDATES = 20


@dataclass(frozen=True)
class StoredFile:
    """A file of an edit: its real path and the hashes of its content before and after; None for no file."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class StoredEdit:
    """One edit. `undoes` is the number of the edit that it undid, 0 for an ordinary one."""

    number: int
    when: str
    instruction: str
    files: tuple[StoredFile, ...]
    is_undone: bool = False
    undoes: int = 0
    is_pending: bool = False  # its files are being written, or its process was killed while it wrote them


class UndoStore:
    def __init__(self, folder: Path) -> None:
        self._records_folder, self._blobs_folder = folder / "notes", folder / "images"
        for each in (self._records_folder, self._blobs_folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_path = folder / "lock"
        self.notices: list[str] = []  # what was put right after a killed edit

    def lock(self) -> AbstractContextManager[None]:
        """Exclusive access, against other processes too."""
        return file_lock(self._lock_path)

    def add(self, instruction: str, replacements: Sequence[Replacement], undoes: int = 0) -> StoredEdit:
        """Store an edit that is about to be applied, as pending. The caller holds the `lock`."""
        edits = self._all_edits()
        files = tuple(StoredFile(str(r.target), self._store_blob(r.old), hash_or_none(r.new)) for r in replacements)
        number = 1 + max((edit.number for edit in edits), default=0)
        edit = StoredEdit(
            number, time.strftime("%Y-%m-%d %H:%M:%S"), instruction, files, undoes=undoes, is_pending=True
        )
        self.write(edit)
        self._evict_oldest([*edits, edit])
        return edit

    def edits(self, *, are_pending: bool = False) -> list[StoredEdit]:
        """The edits that were applied, in order, or those that are being written."""
        return [edit for edit in self._all_edits() if edit.is_pending == are_pending]

    def recover(self) -> None:
        """Finish or take back the edits whose process was killed while it wrote. The caller holds the `lock`."""
        for edit in self.edits(are_pending=True):
            self._recover(edit)

    def _recover(self, edit: StoredEdit) -> None:
        """Keep an edit whose files all have their new content; else put those back that have it."""
        for file in edit.files:
            remove_temporaries(Path(file.path))
        written = [file for file in edit.files if file.before != file.after and _content_hash_of(file) == file.after]
        if len(written) == sum(file.before != file.after for file in edit.files):
            self.write(replace(edit, is_pending=False))
            return
        count = f"{len(written)} of {len(edit.files)} files"
        try:
            write_files([
                Replacement(Path(file.path), read_content(Path(file.path)), self.content_before(file))
                for file in written
            ])  # fmt: skip
        except (OSError, SpecchatError) as error:
            self.notices.append(f"edit {edit.number} was killed after {count}, which cannot be put back: {error}")
            self.write(replace(edit, is_pending=False))  # so that 'specchat undo' can try again
            return
        self.remove(edit)
        if written:
            self.notices.append(f"an edit was killed after it had written {count}; they have their old content again")

    def _all_edits(self) -> list[StoredEdit]:
        records = (_read_record(path) for path in self._records_folder.glob("*.json"))
        return sorted((edit for edit in records if edit), key=lambda edit: edit.number)

    def content_before(self, file: StoredFile) -> bytes | None:
        """The content of a file before the edit, None when there was no file."""
        if file.before is None:
            return None
        try:
            return (self._blobs_folder / file.before).read_bytes()
        except OSError:
            raise UsageError(f"{file.path}: its content before the edit is no longer stored") from None

    def remove(self, edit: StoredEdit) -> None:
        (self._records_folder / f"{edit.number}.json").unlink(missing_ok=True)

    def _store_blob(self, content: bytes | None) -> str | None:
        if content is None:
            return None
        name = content_hash(content)
        if not (self._blobs_folder / name).exists():
            write_atomically(self._blobs_folder / name, content)
        return name

    def write(self, edit: StoredEdit) -> None:
        record = json.dumps(asdict(edit), ensure_ascii=False).encode()
        write_atomically(self._records_folder / f"{edit.number}.json", record)

    def _evict_oldest(self, edits: Sequence[StoredEdit]) -> None:
        """Remove the oldest edits above the limits of number and size; the newest one always stays."""
        needed: set[str] = set()
        free_bytes = MAX_STORED_BYTES
        for age, edit in enumerate(reversed(edits)):
            blobs = {file.before for file in edit.files if file.before is not None} - needed
            paths = (self._blobs_folder / name for name in blobs)
            free_bytes -= sum(path.stat().st_size for path in paths if path.exists())
            if age and (age >= MAX_EDITS or free_bytes < 0):
                self.remove(edit)
            else:
                needed |= blobs
        for blob in self._blobs_folder.iterdir():
            if blob.name not in needed:
                blob.unlink(missing_ok=True)


def user_undo_store() -> UndoStore:
    """The store of this user, beside the history. What a killed edit left is put right; `notices` says so."""
    store = UndoStore(history_path().parent / "edits")
    if store.edits(are_pending=True):  # of a killed process, or of one that writes now and holds the lock
        with store.lock():
            store.recover()
    return store


def save_candidate(name: str, content: bytes) -> Path:
    """Save a rejected text where the user can inspect it; only the newest ones stay."""
    folder = history_path().parent / "edits" / "candidates"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{content_hash(content)[:8]}-{Path(name).name}"
    write_atomically(path, content)
    others = [each for each in folder.iterdir() if each != path]  # the clock may have been set back: keep this one
    for old in sorted(others, key=lambda each: each.stat().st_mtime_ns)[: 1 - MAX_CANDIDATES]:
        old.unlink(missing_ok=True)
    return path


def content_hash(content: bytes) -> str:
    return sha256(content).hexdigest()


def hash_or_none(content: bytes | None) -> str | None:
    return None if content is None else content_hash(content)


def _content_hash_of(file: StoredFile) -> str | None:
    try:
        return hash_or_none(read_content(Path(file.path)))
    except OSError:  # unreadable now: neither the old nor the new content
        return ""


def _read_record(path: Path) -> StoredEdit | None:
    """A record; None when it is missing or invalid."""
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        files = tuple(StoredFile(**file) for file in record.pop("files"))
        return StoredEdit(files=files, **record)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def apply_edit(
    store: UndoStore,
    instruction: str,
    replacements: Sequence[Replacement],
    undoes: int = 0,
    write: Callable[[Sequence[Replacement]], None] = write_files,
) -> StoredEdit:
    """Write all files or none, and store their earlier content."""
    with store.lock():
        store.recover()
        edit = store.add(instruction, replacements, undoes)
        try:
            write(replacements)
        except BaseException as error:
            store.remove(edit)
            if isinstance(error, OSError):
                name = error.filename or replacements[0].path
                raise SpecchatError(f"{name}: cannot be written: {error.strerror}") from error
            raise
        edit = replace(edit, is_pending=False)
        store.write(edit)
    return edit


def record_edit(store: UndoStore, instruction: str, replacements: Sequence[Replacement]) -> StoredEdit:
    """Store an edit whose files an editor has written."""
    return apply_edit(store, instruction, replacements, write=lambda _replacements: None)


def find_edit(store: UndoStore, selector: str, project: Path | None = None) -> StoredEdit:
    """Find an edit: by number, by file (its last edit, that file only), or the last one for "".

    With a project, the last one is one all of whose files lie in this folder.
    """
    edits = store.edits()
    if selector.isdecimal():
        edit = next((edit for edit in edits if edit.number == int(selector)), None)
        if edit is None:
            raise UsageError(f"there is no edit {selector}; 'specchat undo --list' shows the stored edits")
        return edit
    candidates = [edit for edit in reversed(edits) if not edit.is_undone and not edit.undoes]
    if selector:
        path = str(Path(selector).resolve())
        candidates = [
            replace(edit, files=files)
            for edit in candidates
            if (files := tuple(file for file in edit.files if file.path == path))
        ]
    if not candidates:
        raise UsageError(f"no edit{f' of {selector}' if selector else ''} is left to undo")
    for edit in candidates:
        if selector or not project or all(Path(file.path).is_relative_to(project) for file in edit.files):
            return edit
    last = f"edit {candidates[0].number} changed {candidates[0].files[0].path}; its number or --all undoes it"
    raise UsageError(f"no edit in {project} is left to undo; {last}")


def undo_replacements(store: UndoStore, edit: StoredEdit, *, is_forced: bool) -> list[Replacement]:
    """The writes that undo an edit; FileChangedError when a file has changed since the edit."""
    replacements = [_undo_replacement(store, file, is_forced=is_forced) for file in edit.files]
    if needed := [each for each in replacements if each.old != each.new]:
        return needed
    raise NoChangeError(f"edit {edit.number}: all files have their earlier content already")


def undo_edit(store: UndoStore, edit: StoredEdit, *, is_forced: bool) -> StoredEdit:
    replacements = undo_replacements(store, edit, is_forced=is_forced)
    undo = apply_edit(store, f"undo {edit.number}: {edit.instruction}", replacements, edit.number)
    for stored in store.edits():
        if stored.number == edit.number and stored.files == edit.files:
            store.write(replace(stored, is_undone=True))
        elif stored.number == edit.undoes:
            store.write(replace(stored, is_undone=False))
    return undo


def _undo_replacement(store: UndoStore, file: StoredFile, *, is_forced: bool) -> Replacement:
    path = Path(file.path)
    try:
        content = read_content(path)
    except OSError as error:
        raise FileChangedError(f"{path}: cannot be read: {error.strerror}") from None
    if not is_forced and _was_changed(file, content):
        if content is None:
            raise FileChangedError(f"{path}: does not exist any more; --force restores its content before the edit")
        raise FileChangedError(f"{path}: was changed since the edit; --force undoes the edit anyway")
    return Replacement(path, content, store.content_before(file))


def _was_changed(file: StoredFile, content: bytes | None) -> bool:
    """Whether the file has neither its content after nor before the edit. A link is never a file of the edit."""
    is_link = file.before is None and Path(file.path).is_symlink()
    return is_link or hash_or_none(content) not in (file.after, file.before)
