"""What a command prints for the user beside its result: lines on stderr, so that a pipe gets the result alone."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import click

from specchat.errors import DeclinedError, UsageError
from specchat.hub.disk_space import format_bytes
from specchat.own_text import translated
from specchat.repl.temporary_line import TemporaryLine
from specchat.repl.word_wrap import reading_columns, wrapped
from specchat.terminal import can_redraw, printable_with_tabs, raw_stream

UpdateBar = Callable[[int, str], None]  # by the bytes that are here, and what comes


def print_note(line: str) -> None:
    click.echo(translated(line), err=True)


def print_wrapped(line: str) -> None:
    """Print a line for reading, which no one copies."""
    click.echo(wrapped(translated(line), reading_columns()), err=True)


def print_rows(rows: str, indent: int = 4, *, err: bool = False) -> None:
    """Print lines of a table; what does not fit a terminal goes on in the next line, indented."""
    columns = reading_columns(sys.stderr if err else sys.stdout)
    lines = (wrapped(translated(row), columns, " " * indent) for row in rows.split("\n"))
    click.echo("\n".join(lines), err=err)


def confirm(question: str, action: str, declined_message: str) -> None:
    """Ask on a terminal; UsageError elsewhere, DeclinedError for a no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{action} needs a confirmation; --yes gives it")
    if not click.confirm(translated(question), err=True):
        raise DeclinedError(declined_message)


@contextmanager
def download_bar(title: str, total: int, completed: int = 0) -> Generator[UpdateBar]:
    """The one progress bar of downloads; a line now and then where it cannot be drawn over."""
    if not can_redraw(sys.stderr):
        line = TemporaryLine()
        yield lambda count, title: line.show(f"{title}: {format_bytes(count)} of {format_bytes(total)}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(file=raw_stream(sys.stderr))
    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn()
    speed = (TransferSpeedColumn(), TimeRemainingColumn()) if console.width >= 60 else ()  # where they fit
    with Progress(*columns, *speed, console=console, transient=True) as progress:
        bar = progress.add_task(title, total=total, completed=completed)
        yield lambda count, title: progress.update(bar, completed=count, description=printable_with_tabs(title))
