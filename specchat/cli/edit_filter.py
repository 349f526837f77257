"""`specchat edit -`: a text on its way through a pipe, mostly from an editor that takes whatever comes back.

A filter that fails gives back what it got, byte for byte, and says nothing where an editor would take it for text.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import click

from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.errors import NoChangeError, SpecchatError
from specchat.host.spawn import runtime_folder

STDIN = "-"


class EditCommand(click.Command):
    """A command whose mistakes must not cost an editor its text: as a filter it echoes stdin even then."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever, but a filter gives back its input before it complains."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            if STDIN in given:
                _write_stdout(sys.stdin.buffer.read())
                _silence_stderr()
            raise


def run_filter(
    edit_bytes: Callable[[bytes], bytes], *, writes_stderr: bool, is_strict: bool, allows_no_change: bool
) -> int:
    """stdin to stdout as `edited` makes it, or stdin back."""
    raw, new = sys.stdin.buffer.read(MAX_ATTACHED_BYTES + 1), None
    if not (writes_stderr or os.environ.get("SPECCHAT_STDERR") or sys.stderr.isatty()):
        _silence_stderr()
    try:
        new = _edit_input(edit_bytes, raw, allows_no_change=allows_no_change)
    except SpecchatError as error:
        _log(str(error))
        raise
    finally:
        raw += b"" if new is not None else sys.stdin.buffer.read()
        _write_stdout(new if new is not None else b"" if is_strict else raw)
    return 0


def _edit_input(edit_bytes: Callable[[bytes], bytes], raw: bytes, *, allows_no_change: bool) -> bytes:
    """Nothing stays nothing, without a model."""
    try:
        return edit_bytes(raw) if raw else b""
    except NoChangeError:
        if allows_no_change:
            return raw
        raise


def _write_stdout(raw: bytes) -> None:
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def _silence_stderr() -> None:
    """Say no more: editors put what a filter writes to stderr into the text."""
    if not sys.stderr.isatty():
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (it lives as long as the process)


def _log(message: str) -> None:
    with suppress(OSError, SpecchatError), (runtime_folder() / "edit.log").open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
