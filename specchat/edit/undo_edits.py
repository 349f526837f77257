"""Applying an edit so that it can be taken back, and taking it back. Needs no git.

An undo is an edit like any other: it can be taken back by its number, and what it overwrites is kept. A file that an
edit made is removed by it, and made again when that is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specchat.edit.atomic_write import Replacement, read_content, write_files
from specchat.edit.undo_store import StoredEdit, StoredFile, UndoStore, hash_or_none
from specchat.errors import FileChangedError, NoChangeError, UsageError


def apply_edit(store: UndoStore, instruction: str, replacements: Sequence[Replacement], undoes: int = 0) -> StoredEdit:
    """Write all files or none, and remember what they held."""
    with store.lock():
        edit = store.add(instruction, replacements, undoes)
        try:
            write_files(replacements)
        except BaseException:
            store.remove(edit)
            raise
    return edit


def find_edit(store: UndoStore, selector: str) -> StoredEdit:
    """The edit that somebody means: a number, a file (its last edit, that file alone), or "" for the last one."""
    edits = store.edits()
    if selector.isdecimal():
        found = next((edit for edit in edits if edit.number == int(selector)), None)
        if found is None:
            raise UsageError(f"there is no edit {selector}; 'specchat undo --list' shows those that are kept")
        return found
    open_edits = [edit for edit in reversed(edits) if not edit.is_undone and not edit.undoes]
    if selector:
        path = str(Path(selector).resolve())
        open_edits = [
            _restrict_to_file(edit, path) for edit in open_edits if any(file.path == path for file in edit.files)
        ]
    if not open_edits:
        raise UsageError(f"no edit{f' of {selector}' if selector else ''} is left to take back")
    return open_edits[0]


def undo_replacements(store: UndoStore, edit: StoredEdit, *, is_forced: bool) -> list[Replacement]:
    """What taking an edit back would write; FileChangedError when a file is not as the edit left it."""
    needed = [_undo_replacement(store, file, is_forced=is_forced) for file in edit.files]
    wanted = [each for each in needed if each.old != each.new]
    if not wanted:
        raise NoChangeError(f"edit {edit.number}: everything is as it was before")
    return wanted


def undo_edit(store: UndoStore, edit: StoredEdit, *, is_forced: bool) -> StoredEdit:
    """Take it back; returns the new edit that does so."""
    done = apply_edit(
        store,
        f"undo {edit.number}: {edit.instruction}",
        undo_replacements(store, edit, is_forced=is_forced),
        edit.number,
    )
    for known in store.edits():
        if known.number == edit.number and known.files == edit.files:
            store.set_undone(known, is_undone=True)
        elif known.number == edit.undoes:
            store.set_undone(known, is_undone=False)
    return done


def _undo_replacement(store: UndoStore, file: StoredFile, *, is_forced: bool) -> Replacement:
    path = Path(file.path)
    try:
        now = read_content(path)
    except OSError as error:
        raise FileChangedError(f"{path}: cannot be read: {error.strerror}") from None
    if not is_forced and _was_changed(file, now):
        if now is None:
            raise FileChangedError(f"{path}: is no longer there; --force brings it back as it was before the edit")
        raise FileChangedError(f"{path}: was changed since the edit; --force takes the edit back nevertheless")
    return Replacement(path, now, store.content_before(file))


def _was_changed(file: StoredFile, now: bytes | None) -> bool:
    """Is it neither as the edit left it nor as it was before? A link is never a file that the edit made."""
    is_link = file.before is None and Path(file.path).is_symlink()
    return is_link or hash_or_none(now) not in (file.after, file.before)


def _restrict_to_file(edit: StoredEdit, path: str) -> StoredEdit:
    return replace(edit, files=tuple(file for file in edit.files if file.path == path))
