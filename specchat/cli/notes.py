"""What a command prints for the user beside its result: lines on stderr, so that a pipe gets the result alone."""

import sys

import click

from specchat.errors import DeclinedError, UsageError


def print_note(line: str) -> None:
    click.echo(line, err=True)


def confirm(question: str, action: str, declined_message: str) -> None:
    """Ask on a terminal; UsageError elsewhere, DeclinedError for a no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{action} needs a confirmation; --yes gives it")
    if not click.confirm(question, err=True):
        raise DeclinedError(declined_message)
