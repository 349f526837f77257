"""`specchat sessions`: lists and exports stored conversations. Reads the history; starts no engine."""

import time
from contextlib import closing
from pathlib import Path

import click

from specchat.app.export import export_conversation, write_conversation
from specchat.app.session_lines import session_details
from specchat.cli.completion import complete_sessions
from specchat.cli.notes import print_note, print_rows
from specchat.errors import UsageError
from specchat.history.history_reader import CHAT, LISTED_KINDS, HistoryReader, Thread
from specchat.host.spawn import history_path

NONE_YET = "no conversations yet; 'specchat' begins one"


@click.group()
def sessions() -> None:
    """List and export stored conversations."""


@sessions.command("list")
@click.argument("words", nargs=-1)
@click.option("--deleted", is_flag=True, help="Only deleted conversations.")
def list_sessions(words: tuple[str, ...], deleted: bool) -> None:
    """List conversations; with WORDS, those that contain them.

    Chats stand before questions of `specchat ask`. Each has its id ('specchat -r ID' goes on with it), the last use,
    the kind, the model, the folder, the length and the name.
    """
    with closing(open_history()) as history:
        if words:
            found = history.search(" ".join(words))
        else:
            found = [(thread, "") for kind in LISTED_KINDS for thread in history.threads(kind=kind, deleted=deleted)]
        details = history.details()
    for thread, excerpt in sorted(found, key=lambda row: row[0].kind != CHAT):
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(thread.updated))
        described = session_details(details[thread.id].model, thread.folder, details[thread.id].turn_count, "  ")
        line = f"{thread.id}  {day}  {thread.kind}  {described}  {thread.name}"
        print_rows(line + (f"  ({excerpt})" if excerpt else ""))
    if not found:
        print_note("none is found; 'specchat sessions list' shows all that are not deleted")


@sessions.command()
@click.argument("id", shell_complete=complete_sessions)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A new file; stdout by default.")
@click.option("--all", "has_all", is_flag=True, help="All versions of the answers, not only those that are shown.")
def export(id: str, output: Path | None, *, has_all: bool) -> None:
    """Write a conversation as Markdown, or as JSON to a .json file. ID is its id, or the beginning of it."""
    with closing(open_history()) as history:
        thread = find_thread(history, id)
        turns = history.all_turns(thread) if has_all else history.turns(thread.tip)
    if not turns:
        raise UsageError(f"conversation {thread.id} is empty")
    if output is None:
        click.echo(export_conversation(Path(), thread.name, turns), nl=False)
    else:
        print_note(write_conversation(output, thread.name, turns))


def open_history() -> HistoryReader:
    """The history of this user. UsageError when there is none yet."""
    path = history_path()
    if not path.is_file():
        raise UsageError(NONE_YET)
    return HistoryReader(path)


def find_thread(history: HistoryReader, id: str) -> Thread:
    """The conversation with this id or beginning of an id; the last used one without an id."""
    if id:
        if thread := history.thread(id):
            return thread
        raise UsageError(f"no conversation {id!r}, or several begin with it; see 'specchat sessions list'")
    if not (threads := [thread for thread in history.threads() if thread.kind in LISTED_KINDS]):
        raise UsageError(NONE_YET)
    return threads[0]
