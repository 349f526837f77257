"""Applies an edit so that it can be undone, and undoes it. Needs no git.

An undo is an edit like any other: what it overwrites is stored, and its own number undoes it. Undoing an edit that
created a file removes the file; undoing that creates it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specchat.edit.atomic_write import Replacement, read_content, write_files
from specchat.edit.undo_store import StoredEdit, StoredFile, UndoStore, hash_or_none
from specchat.errors import FileChangedError, NoChangeError, UsageError


def apply_edit(store: UndoStore, instruction: str, replacements: Sequence[Replacement], undoes: int = 0) -> StoredEdit:
    """Write all files or none, and store their earlier content."""
    with store.lock():
        edit = store.add(instruction, replacements, undoes)
        try:
            write_files(replacements)
        except BaseException:
            store.remove(edit)
            raise
    return edit


def find_edit(store: UndoStore, selector: str) -> StoredEdit:
    """Find an edit: by number, by file (its last edit, that file only), or the last one for ""."""
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
            _restrict_to_file(edit, path) for edit in candidates if any(file.path == path for file in edit.files)
        ]
    if not candidates:
        raise UsageError(f"no edit{f' of {selector}' if selector else ''} is left to undo")
    return candidates[0]


def undo_replacements(store: UndoStore, edit: StoredEdit, *, is_forced: bool) -> list[Replacement]:
    """The writes that undo an edit; FileChangedError when a file has changed since the edit."""
    replacements = [_undo_replacement(store, file, is_forced=is_forced) for file in edit.files]
    needed = [each for each in replacements if each.old != each.new]
    if not needed:
        raise NoChangeError(f"edit {edit.number}: all files have their earlier content already")
    return needed


def undo_edit(store: UndoStore, edit: StoredEdit, *, is_forced: bool) -> StoredEdit:
    """Undo an edit; returns the new edit that does so."""
    replacements = undo_replacements(store, edit, is_forced=is_forced)
    undo = apply_edit(store, f"undo {edit.number}: {edit.instruction}", replacements, edit.number)
    for stored in store.edits():
        if stored.number == edit.number and stored.files == edit.files:
            store.set_undone(stored, is_undone=True)
        elif stored.number == edit.undoes:
            store.set_undone(stored, is_undone=False)
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


def _restrict_to_file(edit: StoredEdit, path: str) -> StoredEdit:
    return replace(edit, files=tuple(file for file in edit.files if file.path == path))
