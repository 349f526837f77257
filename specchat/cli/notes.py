"""What a command prints for the user beside its result: lines on stderr, so that a pipe gets the result alone."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from shutil import get_terminal_size
from textwrap import fill
from typing import TextIO

import click

from specchat.errors import DeclinedError, UsageError
from specchat.repl.word_wrap import wrapped
from specchat.terminal import printable_with_tabs, raw_stream

UpdateBar = Callable[[int, str], None]  # by the bytes that are here, and what comes


def print_note(line: str) -> None:
    click.echo(line, err=True)


def print_wrapped(line: str) -> None:
    """Print a line for reading, which no one copies."""
    print_note(wrapped(line, reading_columns()))


def print_hanging(line: str, indent: int, *, err: bool = False) -> None:
    """Print a line that a terminal breaks between words, and whose rest is indented."""
    columns = reading_columns(sys.stderr if err else sys.stdout)
    wrap = partial(fill, width=columns, break_long_words=False, break_on_hyphens=False)
    click.echo(wrap(line, subsequent_indent=" " * indent) if columns else line, err=err)


def reading_columns(stream: TextIO | None = None) -> int:
    """Those of a terminal, 0 elsewhere."""
    return get_terminal_size().columns if (stream or sys.stderr).isatty() else 0


def confirm(question: str, action: str, declined_message: str) -> None:
    """Ask on a terminal; UsageError elsewhere, DeclinedError for a no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{action} needs a confirmation; --yes gives it")
    if not click.confirm(question, err=True):
        raise DeclinedError(declined_message)


@contextmanager
def download_bar(title: str, total: int, completed: int = 0) -> Generator[UpdateBar]:
    """The one progress bar of downloads, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(file=raw_stream(sys.stderr))
    is_hidden = not sys.stderr.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=is_hidden) as progress:
        bar = progress.add_task(title, total=total, completed=completed)
        yield lambda count, title: progress.update(bar, completed=count, description=printable_with_tabs(title))
