"""`specchat undo`: takes an edit back, without git. An undo is an edit too, and can be taken back by its number."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from specchat.chat.attachments import decode_bytes, display_name
from specchat.cli.completion import complete_files
from specchat.cli.notes import print_note
from specchat.edit.atomic_write import Replacement
from specchat.edit.hunks import unified_diff
from specchat.edit.undo_store import StoredEdit, find_edit, undo_edit, undo_replacements, user_undo_store


@click.command()
@click.argument("which", default="", metavar="[N|FILE]", shell_complete=complete_files)
@click.option("--list", "is_list", is_flag=True, help="List the stored edits, the newest last.")
@click.option("--diff", "is_diff", is_flag=True, help="Print the diff and write nothing.")
@click.option("--force", is_flag=True, help="Even if a file changed since; its present content is stored.")
def undo(which: str, *, is_list: bool, is_diff: bool, force: bool) -> int:
    """Take back the last edit, the edit N, or the last edit of FILE."""
    store = user_undo_store()
    for notice in store.notices:
        print_note(f"specchat: {notice}")
    if is_list:
        _print_list(store.edits())
        return 0
    edit = find_edit(store, which)
    if is_diff:
        _print_diff(undo_replacements(store, edit, is_forced=force))
        return 0
    undone = undo_edit(store, edit, is_forced=force)
    names = ", ".join(file.path for file in undone.files)
    print_note(f"took back edit {edit.number} of {names} · redo: specchat undo {undone.number}")
    return 0


def _print_list(edits: Sequence[StoredEdit]) -> None:
    for edit in edits:
        names = ", ".join(display_name(Path(file.path)) for file in edit.files)
        instruction = " ".join(edit.instruction.split())
        print(f"{edit.number:4} {edit.when} {'undone ' if edit.is_undone else ''}{names} · {instruction}")


def _print_diff(replacements: Sequence[Replacement]) -> None:
    for each in replacements:
        name = str(each.path)
        sys.stdout.write(unified_diff(name, _decoded(each.old, name), _decoded(each.new, name)))


def _decoded(raw: bytes | None, name: str) -> str | None:
    """The whole text, including a byte order mark."""
    return None if raw is None else raw.decode(decode_bytes(raw, name)[1].removesuffix("-sig"))
