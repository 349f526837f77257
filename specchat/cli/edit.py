"""`specchat edit`: a file rewritten as asked, or a text on its way through a pipe.

stdout is the diff or the new text, stderr the talk. A filter that fails gives back what it got, byte for byte, and
says nothing where an editor would take it for text.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from specchat.chat.events import Event, Loading, Text
from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.chat.summary import summary_line
from specchat.cli.conversation import ERASE_LINE
from specchat.cli.hosted import open_hosted, wish
from specchat.cli.options import profile_options
from specchat.edit.apply import write
from specchat.edit.patch import diff
from specchat.edit.source import Source, make_source, read_source
from specchat.edit.task import Edited
from specchat.edit.task import edit as edit_source
from specchat.errors import CancelledError, NoChangeError, NotTakenError, SpecchatError, UsageError
from specchat.host.spawn import runtime_folder
from specchat.repl.stopping import stoppable

STDIN = "-"
USAGE = 'usage: specchat edit FILE "INSTRUCTION", or specchat edit - "INSTRUCTION" < text'


class EditCommand(click.Command):
    """A command whose mistakes must not cost an editor its text: as a filter it echoes stdin even then."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever, but a filter gives back its input before it complains."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            if STDIN in given:
                sys.stdout.buffer.write(sys.stdin.buffer.read())
                sys.stdout.buffer.flush()
                _hush()
            raise


@click.command(cls=EditCommand)
@click.argument("words", nargs=-1, metavar="FILE|- INSTRUCTION...")
@click.option("-y", "--yes", is_flag=True, help="Apply without asking.")
@click.option("--diff", "is_diff", is_flag=True, help="Print the diff and write nothing.")
@click.option("--lang", default="", help="The language of a piped text, as a file ending: py, json, toml...")
@click.option("--stderr", "is_loud", is_flag=True, help="As a filter, say on stderr what went wrong.")
@click.option("--strict", is_flag=True, help="As a filter, print nothing when the edit fails.")
@click.option("--allow-empty", is_flag=True, help="No change is no failure.")
@profile_options
def edit(words: tuple[str, ...], **options: Any) -> int:
    """Rewrite a file as asked.

    On a terminal the diff is shown and you are asked; in a pipe it is printed and nothing is written. `-` reads the
    text from standard input and prints the new one.
    """
    if STDIN in words:
        return _filter([word for word in words if word != STDIN], options)
    if len(words) < 2:
        raise UsageError(f"an edit needs a file and an instruction; {USAGE}")
    path = Path(words[0])
    source = read_source(path)
    try:
        edited = _edited(source, " ".join(words[1:]), options)
    except NoChangeError as nothing:
        return _nothing_to_do(nothing, options)
    _offer(source, path, edited, options)
    return 0


def _edited(source: Source, instruction: str, options: dict[str, Any]) -> Edited:
    progress = Progress(len(source.text))
    if click.get_current_context().get_parameter_source("profile") == ParameterSource.DEFAULT:
        options = {**options, "profile": "edit"}
    try:
        with stoppable() as stopped, open_hosted(wish(options, kind="edit")) as conversation:
            try:
                return edit_source(source, instruction, conversation, stopped, progress.hear)
            except CancelledError as cancelled:
                cancelled.exit_code = stopped.exit_code
                raise
    finally:
        progress.erase()


def _offer(source: Source, path: Path, edited: Edited, options: dict[str, Any]) -> None:
    """Apply, ask, or print, as the options and the terminal want it."""
    patch = diff(source, edited.text)
    is_asking = not options["is_diff"] and sys.stdout.isatty() and sys.stdin.isatty()
    if not options["yes"]:
        sys.stdout.write(patch)
        sys.stdout.flush()
        if not is_asking:
            return
        if not click.confirm(f"apply to {path}?", err=True):
            raise NotTakenError(f"{path}: left as it was")
    try:
        write(source, path, source.encode(edited.text))
    except OSError as error:
        raise SpecchatError(f"{path}: cannot be written: {error.strerror}") from error
    if edited.routed:
        print(f"applied · {summary_line(edited.routed, edited.finished.totals)}", file=sys.stderr)


def _nothing_to_do(nothing: NoChangeError, options: dict[str, Any]) -> int:
    if options["allow_empty"]:
        return 0
    raise nothing


def _filter(words: list[str], options: dict[str, Any]) -> int:
    """stdin to stdout, or stdin back."""
    raw, new = sys.stdin.buffer.read(MAX_ATTACHED_BYTES + 1), None
    if not (options["is_loud"] or os.environ.get("SPECCHAT_STDERR") or sys.stderr.isatty()):
        _hush()
    try:
        new = _filtered(raw, " ".join(words), options)
    except SpecchatError as error:
        _log(str(error))
        raise
    finally:
        raw += b"" if new is not None else sys.stdin.buffer.read()
        answer = new if new is not None else b"" if options["strict"] else raw
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    return 0


def _filtered(raw: bytes, instruction: str, options: dict[str, Any]) -> bytes:
    if not raw:
        return b""
    if not instruction.strip():
        raise UsageError(f"an edit needs an instruction; {USAGE}")
    source = make_source(raw, f"stdin.{options['lang']}" if options["lang"] else "stdin")
    try:
        return source.encode(_edited(source, instruction, options).text)
    except NoChangeError:
        if options["allow_empty"]:
            return raw
        raise


def _hush() -> None:
    """Say no more: editors put what a filter writes to stderr into the text."""
    if not sys.stderr.isatty():
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (it lives as long as the process)


def _log(message: str) -> None:
    with suppress(OSError, SpecchatError), (runtime_folder() / "edit.log").open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")


class Progress:
    """A passing line on a terminal: how much of the text is written."""

    def __init__(self, length: int) -> None:
        self.length, self.done, self.shown = max(1, length), 0, ""
        self.is_visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ

    def hear(self, event: Event) -> None:
        """Draw when the percent changes."""
        if isinstance(event, Text):
            self.done += len(event.text)
            self._show(f"{min(99, 100 * self.done // self.length)} % written")
        elif isinstance(event, Loading):
            self._show(f"loading the {event.what} model…")

    def _show(self, line: str) -> None:
        if self.is_visible and line != self.shown:
            self.shown = line
            sys.stderr.write(f"{ERASE_LINE}{line}")
            sys.stderr.flush()

    def erase(self) -> None:
        """Make room for what stays."""
        if self.shown:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()
