"""Applying an edit so that it can be taken back, and taking it back. Needs no git.

An undo is an edit like any other: it can be taken back by its number, and what it overwrites is kept. A file that an
edit made is removed by it, and made again when that is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specchat.edit.atomic_write import Replacement, content_of, write_all
from specchat.edit.undo_store import Kept, KeptEdit, KeptFile, state_of
from specchat.errors import FileChangedError, NoChangeError, UsageError


def apply(kept: Kept, instruction: str, replacements: Sequence[Replacement], undoes: int = 0) -> KeptEdit:
    """Write all files or none, and remember what they held."""
    with kept.alone():
        edit = kept.add(instruction, replacements, undoes)
        try:
            write_all(replacements)
        except BaseException:
            kept.drop(edit)
            raise
    return edit


def chosen_edit(kept: Kept, which: str) -> KeptEdit:
    """The edit that somebody means: a number, a file (its last edit, that file alone), or "" for the last one."""
    edits = kept.edits()
    if which.isdecimal():
        found = next((edit for edit in edits if edit.number == int(which)), None)
        if found is None:
            raise UsageError(f"there is no edit {which}; 'specchat undo --list' shows those that are kept")
        return found
    open_edits = [edit for edit in reversed(edits) if not edit.is_undone and not edit.undoes]
    if which:
        path = str(Path(which).resolve())
        open_edits = [_only(edit, path) for edit in open_edits if any(file.path == path for file in edit.files)]
    if not open_edits:
        raise UsageError(f"no edit{f' of {which}' if which else ''} is left to take back")
    return open_edits[0]


def undoing(kept: Kept, edit: KeptEdit, *, is_forced: bool) -> list[Replacement]:
    """What taking an edit back would write; FileChangedError when a file is not as the edit left it."""
    needed = [_undoing(kept, file, is_forced=is_forced) for file in edit.files]
    wanted = [each for each in needed if each.old != each.new]
    if not wanted:
        raise NoChangeError(f"edit {edit.number}: everything is as it was before")
    return wanted


def undo_edit(kept: Kept, edit: KeptEdit, *, is_forced: bool) -> KeptEdit:
    """Take it back; returns the new edit that does so."""
    done = apply(kept, f"undo {edit.number}: {edit.instruction}", undoing(kept, edit, is_forced=is_forced), edit.number)
    for known in kept.edits():
        if known.number == edit.number and known.files == edit.files:
            kept.mark(known, is_undone=True)
        elif known.number == edit.undoes:
            kept.mark(known, is_undone=False)
    return done


def _undoing(kept: Kept, file: KeptFile, *, is_forced: bool) -> Replacement:
    path = Path(file.path)
    try:
        now = content_of(path)
    except OSError as error:
        raise FileChangedError(f"{path}: cannot be read: {error.strerror}") from None
    if not is_forced and _was_changed(file, now):
        if now is None:
            raise FileChangedError(f"{path}: is no longer there; --force brings it back as it was before the edit")
        raise FileChangedError(f"{path}: was changed since the edit; --force takes the edit back nevertheless")
    return Replacement(path, now, kept.before(file))


def _was_changed(file: KeptFile, now: bytes | None) -> bool:
    """Is it neither as the edit left it nor as it was before? A link is never a file that the edit made."""
    is_link = file.before is None and Path(file.path).is_symlink()
    return is_link or state_of(now) not in (file.after, file.before)


def _only(edit: KeptEdit, path: str) -> KeptEdit:
    return replace(edit, files=tuple(file for file in edit.files if file.path == path))
