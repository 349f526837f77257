"""Takes an edit back, for `specchat undo` and `/undo`: its lines for the user. An undo is an edit too."""

from pathlib import Path

from specchat.app.edit import display_path
from specchat.chat.attachments import decode_bytes, display_name
from specchat.context.file_listing import find_repository
from specchat.edit.hunks import unified_diff
from specchat.edit.undo_store import StoredEdit, UndoStore, find_edit, undo_edit, undo_replacements, user_undo_store

ALL_PROJECTS = "--all"


def take_back(which: str, command: str, *, is_forced: bool = False) -> str:
    """Take back the last edit of this project, ALL_PROJECTS, or of a file, or one by number; `command` undoes that."""
    store = user_undo_store()
    edit = _find(store, which)
    undone = undo_edit(store, edit, is_forced=is_forced)
    names = ", ".join(display_path(Path(file.path)) for file in undone.files)
    line = f"took back edit {edit.number} of {names} · {command} {undone.number} applies it again"
    return "\n".join([*store.notices, line])


def recovered_edits() -> list[str]:
    """Put right what a killed edit left, and say so."""
    return user_undo_store().notices


def take_back_diff(which: str, *, is_forced: bool) -> str:
    """What would change."""
    store = user_undo_store()
    writes = undo_replacements(store, _find(store, which), is_forced=is_forced)
    texts = ((str(each.path), each.old, each.new) for each in writes)
    return "".join(unified_diff(name, _decoded(old, name), _decoded(new, name)) for name, old, new in texts)


def stored_edits() -> list[str]:
    """A line for each stored edit, the newest last."""
    return [_line(edit) for edit in user_undo_store().edits()]


def _find(store: UndoStore, which: str) -> StoredEdit:
    """The project is the repository around the current folder, or this folder."""
    here = Path.cwd().resolve()
    return find_edit(store, "") if which == ALL_PROJECTS else find_edit(store, which, find_repository(here) or here)


def _line(edit: StoredEdit) -> str:
    names = ", ".join(display_name(Path(file.path)) for file in edit.files)
    undone = "undone " if edit.is_undone else ""
    return f"{edit.number:4} {edit.when} {undone}{names} · {' '.join(edit.instruction.split())}"


def _decoded(raw: bytes | None, name: str) -> str | None:
    """The whole text, including a byte order mark."""
    return None if raw is None else raw.decode(decode_bytes(raw, name)[1].removesuffix("-sig"))
