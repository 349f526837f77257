"""`specchat undo`: takes an edit back, without git. An undo is an edit too, and can be taken back by its number."""

import sys

import click

from specchat.app.take_back import ALL_PROJECTS, recovered_edits, stored_edits, take_back, take_back_diff
from specchat.cli.completion import complete_files
from specchat.cli.notes import print_note, print_rows
from specchat.errors import UsageError


@click.command()
@click.argument("which", default="", metavar="[N|FILE]", shell_complete=complete_files)
@click.option(ALL_PROJECTS, "is_all", is_flag=True, help="The last edit of all, also outside of this project.")
@click.option("--list", "is_list", is_flag=True, help="List the stored edits, the newest last.")
@click.option("--diff", "is_diff", is_flag=True, help="Print the diff and write nothing.")
@click.option("--force", is_flag=True, help="Even if a file changed since; its present content is stored.")
def undo(which: str, *, is_all: bool, is_list: bool, is_diff: bool, force: bool) -> int:
    """Take back the last edit of this project (git repository or folder), the edit N, or the last one of FILE."""
    if which and is_all:
        raise UsageError("--all is about the last edit of all; leave it out with a number or a file")
    which = ALL_PROJECTS if is_all else which
    for notice in recovered_edits():
        print_note(f"specchat: {notice}")
    if is_list:
        for line in stored_edits():
            print_rows(line)
    elif is_diff:
        sys.stdout.write(take_back_diff(which, is_forced=force))
    else:
        print_note(take_back(which, "specchat undo", is_forced=force))
    return 0
