"""`specchat edit -`: a filter for pipes, mostly started by an editor that accepts any output.

A filter that fails returns its input byte for byte, and prints nothing where an editor would insert it into the text.
"""

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
    """A command that returns its input on a usage error when it is a filter."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; a filter returns its input before it reports an error."""
        arguments = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            if STDIN in arguments:
                _write_stdout(sys.stdin.buffer.read())
                _silence_stderr()
            raise


def run_filter(
    edit_bytes: Callable[[bytes], bytes], *, writes_stderr: bool, is_strict: bool, allows_no_change: bool
) -> int:
    """Write the edited stdin to stdout, or stdin unchanged after an error."""
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
    """Edit; an empty input needs no model."""
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
    """Close stderr: editors insert what a filter writes there into the text."""
    if not sys.stderr.isatty():
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (open as long as the process lives)


def _log(message: str) -> None:
    with suppress(OSError, SpecchatError), (runtime_folder() / "edit.log").open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
